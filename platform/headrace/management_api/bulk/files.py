"""`/v1/files`, in OpenAI's dialect: what a project uploads, and what its jobs wrote for it.

A file comes in and goes out in parts, never as a whole in memory. Whose files are whose, and what
there is room for, `batch_jobs` decides.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

import batch_jobs.facade
from batch_jobs.contracts import FileContent, FileInfo, Owner
from headrace import errors
from headrace.arriving import arriving_body
from headrace.management_api.base import ProjectKeyView
from headrace.management_api.bulk.byte_ranges import ByteRange, RangeNotSatisfiable, asked_range
from headrace.management_api.bulk.shapes import (
    EXPIRES_S_MAX,
    EXPIRES_S_MIN,
    FILE_PREFIX,
    file_id_of,
    file_id_shown,
    parse_id,
)
from headrace.management_api.bulk.upload_form import UploadForm, read_form
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import KeyScope

UPLOAD_PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
PURPOSES = (*UPLOAD_PURPOSES, "batch_output")
ANCHOR_FIELD, SECONDS_FIELD = "expires_after[anchor]", "expires_after[seconds]"
FIELDS = ("purpose", ANCHOR_FIELD, SECONDS_FIELD)

_threads = ThreadPoolExecutor(settings.FILE_THREADS_MAX, thread_name_prefix="files")
"""For parts of downloads: a slow storage must not take the threads of the database."""


class FileShown(serializers.Serializer[Any]):
    """A file as it is read."""

    object = serializers.ChoiceField(["file"])
    id = serializers.CharField()
    bytes = serializers.IntegerField()
    created_at = serializers.IntegerField()
    expires_at = serializers.IntegerField(allow_null=True)
    filename = serializers.CharField()
    purpose = serializers.ChoiceField(PURPOSES)
    status = serializers.ChoiceField(["processed"])
    status_details = serializers.CharField(allow_null=True)


class FileDeletedShown(serializers.Serializer[Any]):
    """What is left of a file."""

    object = serializers.ChoiceField(["file"])
    id = serializers.CharField()
    deleted = serializers.BooleanField()


UPLOAD_SHOWN = inline_serializer(
    "FileUpload",
    {
        "file": extend_schema_field({"type": "string", "format": "binary"})(
            serializers.FileField
        )(),
        "purpose": serializers.ChoiceField(UPLOAD_PURPOSES),
        ANCHOR_FIELD: serializers.ChoiceField(["created_at"], required=False),
        SECONDS_FIELD: serializers.IntegerField(
            required=False, min_value=EXPIRES_S_MIN, max_value=EXPIRES_S_MAX
        ),
    },
)
"""For the API's description alone: `upload_form` reads it."""


class FilesView(ProjectKeyView):
    """The project's files."""

    needs = KeyScope.FILES
    parser_classes = [MultiPartParser]

    @extend_schema(
        parameters=[
            OpenApiParameter("purpose", enum=PURPOSES),
            OpenApiParameter(
                "limit",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": settings.FILES_LISTED_MAX,
                    "default": settings.FILES_LISTED_MAX,
                },
            ),
        ],
        responses=page_shown(FileShown, serializers.CharField),
    )
    def get(self, request: Request) -> Response:
        """The project's files, newest first."""
        limit_max = settings.FILES_LISTED_MAX
        page = asked_page(
            request, "purpose", parse_id=_file_id, limit_max=limit_max, limit_default=limit_max
        )
        rows = batch_jobs.facade.list_files(
            self.owner,
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
            purpose=request.query_params.get("purpose"),
        )
        return Response(page_body(rows, page, render_file))

    @extend_schema(request=UPLOAD_SHOWN, responses=FileShown)
    def post(self, request: Request) -> Response:
        """Upload a file. What is for a batch is kept for 30 days, unless told otherwise."""
        info = take_upload(self.owner, request._request)  # noqa: SLF001 - no other way
        return Response(render_file(info))


class FileView(ProjectKeyView):
    """One file."""

    needs = KeyScope.FILES

    @extend_schema(responses=FileShown)
    def get(self, request: Request, file_id: str) -> Response:
        """What it is."""
        return Response(render_file(batch_jobs.facade.read_file(self.owner, file_id_of(file_id))))

    @extend_schema(responses=FileDeletedShown)
    def delete(self, request: Request, file_id: str) -> Response:
        """Delete it; 409 while a job that has not ended reads it."""
        batch_jobs.facade.delete_file(self.owner, file_id_of(file_id))
        return Response({"id": file_id, "object": "file", "deleted": True})


class FileContentView(ProjectKeyView):
    """What a file holds."""

    needs = KeyScope.FILES

    @extend_schema(
        parameters=[OpenApiParameter("Range", location="header", description="`bytes=0-99`")],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            416: None,
        },
    )
    def get(self, request: Request, file_id: str) -> HttpResponseBase:
        """Its bytes, or the range of them that is asked for."""
        return content_answer(self.owner, file_id_of(file_id), request._request)  # noqa: SLF001

    @extend_schema(exclude=True)
    def head(self, request: Request, file_id: str) -> HttpResponseBase:
        """How many."""
        return content_answer(self.owner, file_id_of(file_id), request._request)  # noqa: SLF001


def content_answer(owner: Owner, file_id: UUID, request: HttpRequest) -> HttpResponseBase:
    """A file's bytes, or the range of them that the request asks for; raises FileMissing."""
    content = batch_jobs.facade.open_content(owner, file_id)
    size_bytes = content.info.size_bytes
    try:
        asked = asked_range(request.headers.get("range"), size_bytes)
    except RangeNotSatisfiable:
        return HttpResponse(status=416, headers={"content-range": f"bytes */{size_bytes}"})
    span = asked or ByteRange(0, size_bytes)
    headers = {
        "content-length": str(span.end - span.start),
        "content-disposition": content_disposition_header(True, content.info.filename) or "",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "accept-ranges": "bytes",
    }
    if asked:
        headers["content-range"] = f"bytes {span.start}-{span.end - 1}/{size_bytes}"
    parts = () if request.method == "HEAD" else _parts(content, span)
    kind = HttpResponse if request.method == "HEAD" else StreamingHttpResponse
    return kind(
        parts,
        status=206 if asked else 200,
        content_type="application/octet-stream",
        headers=headers,
    )


def take_upload(owner: Owner, request: HttpRequest) -> FileInfo:
    """Keeps the file of a form that is still arriving; whose it is was decided before a byte of it
    was asked for. Raises ApiError 400, 408, 413 and 503, StorageFull, StorageAway."""
    body = arriving_body(request.scope)  # type: ignore[attr-defined]  # an ASGI request's
    form_bytes_max = settings.UPLOAD_FORM_BYTES_MAX
    with body.admitted(owner.organization_id, settings.FILE_BYTES_MAX + form_bytes_max):
        least_bytes = max(0, (body.length or 0) - form_bytes_max)
        batch_jobs.facade.check_room(owner.organization_id, least_bytes)
        # An upload takes minutes, and the pool has few connections.
        connection.close()
        with read_form(request.META, body) as form:
            return _stored(owner, form)


def _stored(owner: Owner, form: UploadForm) -> FileInfo:
    for name in form.fields:
        if name not in FIELDS:
            raise errors.invalid(f"Unknown parameter: '{name[:100]}'.", name[:100])
    purpose = form.fields.get("purpose")
    if purpose not in UPLOAD_PURPOSES:
        known = ", ".join(f"'{one}'" for one in UPLOAD_PURPOSES)
        raise errors.invalid(f"'purpose' must be one of {known}.", "purpose")
    size_bytes = form.content.seek(0, 2)
    if size_bytes == 0:
        raise errors.invalid("The file is empty.", "file", "empty_file")
    if purpose == "batch" and size_bytes > settings.BATCH_FILE_BYTES_MAX:
        raise errors.body_too_large(settings.BATCH_FILE_BYTES_MAX)
    life_s = _asked_life_s(form)
    if life_s is None and purpose == "batch":
        life_s = settings.FILE_LIFE_S
    expires_at = None if life_s is None else datetime.now(UTC) + timedelta(seconds=life_s)
    return batch_jobs.facade.store_upload(owner, purpose, form.filename, form.content, expires_at)


def render_file(info: FileInfo) -> dict[str, Any]:
    """OpenAI's file object."""
    return {
        "object": "file",
        "id": file_id_shown(info.file_id),
        "bytes": info.size_bytes,
        "created_at": int(info.created_at.timestamp()),
        "expires_at": int(info.expires_at.timestamp()) if info.expires_at else None,
        "filename": info.filename,
        "purpose": info.purpose,
        "status": "processed",
        "status_details": None,
    }


def _file_id(text: str) -> UUID:
    return parse_id(FILE_PREFIX, text)


def _asked_life_s(form: UploadForm) -> int | None:
    anchor, seconds = form.fields.get(ANCHOR_FIELD), form.fields.get(SECONDS_FIELD)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise errors.invalid(f"'{ANCHOR_FIELD}' must be 'created_at'.", ANCHOR_FIELD)
    is_number = seconds is not None and seconds.isascii() and seconds.isdecimal()
    if not is_number or not EXPIRES_S_MIN <= int((seconds or "")[:9]) <= EXPIRES_S_MAX:
        raise errors.invalid(
            f"'{SECONDS_FIELD}' must be a number from {EXPIRES_S_MIN} to {EXPIRES_S_MAX}.",
            SECONDS_FIELD,
        )
    return int(seconds or "")


async def _parts(content: FileContent, span: ByteRange) -> AsyncIterator[bytes]:
    """No thread waits while a slow client reads."""
    loop = asyncio.get_running_loop()
    for start in range(span.start, span.end, settings.FILE_PART_BYTES):
        size_bytes = min(settings.FILE_PART_BYTES, span.end - start)
        yield await loop.run_in_executor(
            _threads, batch_jobs.facade.read_content, content, start, size_bytes
        )
