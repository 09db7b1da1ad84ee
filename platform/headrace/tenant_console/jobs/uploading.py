"""`POST /console/<slug>/jobs/files?project=`: an upload by session, stored as it arrives.

The same door as `POST /v1/files`: who somebody is, whether they may, and the CSRF token, which
comes in a header, are decided before a byte of the body is asked for. Sent by `upload.js`.
"""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from rest_framework.authentication import CSRFCheck

from batch_jobs.contracts import FileInfo, Owner
from headrace import errors
from headrace.console_kit.pages import PageView
from headrace.management_api.bulk.files import take_upload
from headrace.tenant_console.console_keys import console_key
from tenants.contracts import Permission


@method_decorator(csrf_exempt, name="dispatch")
class UploadView(PageView):
    """A file for a job to be; exempt from the middleware's check, which would read the body."""

    page = "jobs"
    title = "Upload"
    needs = Permission.JOBS_READ
    writes = Permission.JOBS_WRITE

    def prepare(self) -> None:
        """The token first, then who, where, whether; raises ApiError 403."""
        # Nothing may look for a field in a body that has not arrived.
        self.request.POST = QueryDict()
        check = CSRFCheck(_no_view)
        check.process_request(self.request)
        if check.process_view(self.request, _no_view, (), {}) is not None:
            raise errors.csrf_failed()
        super().prepare()

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Keeps the file of the form `purpose`, `file`; says its id."""
        if self.project is None:
            raise errors.invalid("'project' must name a project.", "project")
        project_id = self.project.project_id
        owner = Owner(self.organization_id, project_id, console_key(self.actor, project_id))
        return JsonResponse(file_shown(take_upload(owner, request)))


def file_shown(info: FileInfo) -> Mapping[str, object]:
    """What `upload.js` shows of a file, and sends with the form of the job."""
    return {"id": str(info.file_id), "name": info.filename, "bytes": info.size_bytes}


def _no_view(_request: HttpRequest) -> HttpResponse:
    raise AssertionError("the check alone is asked")
