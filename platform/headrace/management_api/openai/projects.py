"""OpenAI's `/v1/organization/projects`, with the service accounts and keys of a project.

The same facades and permissions as the management API; only the shapes are OpenAI's. A key's secret
is in the answer that made it, as a service account's `api_key.value`.
"""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.openai.lists import DeletedShown, deleted, seconds
from headrace.management_api.paging import asked_flag, asked_page, page_body, page_shown
from tenants.contracts import (
    KeyInfo,
    KeyKind,
    KeySettings,
    Permission,
    ProjectInfo,
    ServiceAccount,
    TenantObjectNotFound,
)

NAME_CHARS_MAX = 120
PROJECT = "organization.project"
ACCOUNT = f"{PROJECT}.service_account"
KEY = f"{PROJECT}.api_key"


class NameBody(Body):
    """A name."""

    name = serializers.CharField(max_length=NAME_CHARS_MAX)


class OpenAiProject(serializers.Serializer[Any]):
    """OpenAI's project object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    status = serializers.ChoiceField(["active", "archived"])
    created_at = serializers.IntegerField()
    archived_at = serializers.IntegerField(allow_null=True)


class OpenAiServiceAccount(serializers.Serializer[Any]):
    """OpenAI's service account object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    role = serializers.CharField()
    created_at = serializers.IntegerField()


class OpenAiFirstKey(serializers.Serializer[Any]):
    """The key that comes with a new service account; `value` is shown this once."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    value = serializers.CharField()
    created_at = serializers.IntegerField()


class OpenAiServiceAccountMade(OpenAiServiceAccount):
    """A new service account with its key."""

    api_key = OpenAiFirstKey()


class OpenAiProjectKey(serializers.Serializer[Any]):
    """OpenAI's project key object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    name = serializers.CharField()
    redacted_value = serializers.CharField()
    created_at = serializers.IntegerField()
    last_used_at = serializers.IntegerField(allow_null=True)
    owner = serializers.DictField()
    owner_project_access = serializers.ChoiceField(["active", "inactive"])


class OpenAiProjectsView(OrganizationKeyView):
    """Projects."""

    permissions = {"GET": Permission.PROJECTS_READ, "POST": Permission.PROJECTS_WRITE}

    @extend_schema(
        parameters=[OpenApiParameter("include_archived", bool)], responses=page_shown(OpenAiProject)
    )
    def get(self, request: Request) -> Response:
        """Projects, newest first."""
        page = asked_page(request, "include_archived")
        rows = tenants.facade.list_projects(
            self.actor,
            with_archived=asked_flag(request, "include_archived"),
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_openai_project))

    @extend_schema(request=NameBody, responses=OpenAiProject)
    def post(self, request: Request) -> Response:
        """A new project."""
        made = tenants.facade.open_project(self.actor, self.body(NameBody)["name"])
        return Response(render_openai_project(made))


class OpenAiProjectView(OrganizationKeyView):
    """One project."""

    permissions = {"GET": Permission.PROJECTS_READ, "POST": Permission.PROJECTS_WRITE}

    @extend_schema(responses=OpenAiProject)
    def get(self, request: Request, project_id: UUID) -> Response:
        """The project."""
        return Response(render_openai_project(tenants.facade.read_project(self.actor, project_id)))

    @extend_schema(request=NameBody, responses=OpenAiProject)
    def post(self, request: Request, project_id: UUID) -> Response:
        """Another name."""
        name = self.body(NameBody)["name"]
        changed = tenants.facade.update_project(self.actor, project_id, name=name)
        return Response(render_openai_project(changed))


class OpenAiProjectArchiveView(OrganizationKeyView):
    """The end of a project."""

    permissions = {"POST": Permission.PROJECTS_WRITE}

    @extend_schema(request=None, responses=OpenAiProject)
    def post(self, request: Request, project_id: UUID) -> Response:
        """Archive for good."""
        self.body(Body)
        return Response(render_openai_project(tenants.facade.close_project(self.actor, project_id)))


class OpenAiServiceAccountsView(OrganizationKeyView):
    """A project's service accounts."""

    permissions = {"GET": Permission.KEYS_READ, "POST": Permission.KEYS_WRITE}

    @extend_schema(responses=page_shown(OpenAiServiceAccount))
    def get(self, request: Request, project_id: UUID) -> Response:
        """Service accounts, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_service_accounts(
            self.actor,
            project_id,
            with_disabled=False,
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_openai_account))

    @extend_schema(request=NameBody, responses=OpenAiServiceAccountMade)
    def post(self, request: Request, project_id: UUID) -> Response:
        """A new account with a key of every scope."""
        name = self.body(NameBody)["name"]
        account, issued = tenants.facade.create_service_account_with_key(
            self.actor, project_id, KeySettings(name)
        )
        key = {
            "object": f"{ACCOUNT}.api_key",
            "id": str(issued.key_id),
            "name": name,
            "value": issued.secret,
            "created_at": seconds(account.created_at),
        }
        return Response(render_openai_account(account) | {"api_key": key})


class OpenAiServiceAccountView(OrganizationKeyView):
    """One service account of a project."""

    permissions = {"GET": Permission.KEYS_READ, "DELETE": Permission.KEYS_WRITE}

    @extend_schema(responses=OpenAiServiceAccount)
    def get(self, request: Request, project_id: UUID, service_account_id: UUID) -> Response:
        """The account."""
        return Response(render_openai_account(self._found(project_id, service_account_id)))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, project_id: UUID, service_account_id: UUID) -> Response:
        """Disable for good: its keys stop at once."""
        self._found(project_id, service_account_id)
        tenants.facade.disable_service_account(self.actor, service_account_id)
        return Response(deleted(ACCOUNT, service_account_id))

    def _found(self, project_id: UUID, service_account_id: UUID) -> ServiceAccount:
        found = tenants.facade.read_service_account(self.actor, service_account_id)
        if found.project_id != project_id or found.disabled_at is not None:
            raise TenantObjectNotFound("no such service account")
        return found


class OpenAiProjectKeysView(OrganizationKeyView):
    """A project's keys."""

    permissions = {"GET": Permission.KEYS_READ}

    @extend_schema(responses=page_shown(OpenAiProjectKey))
    def get(self, request: Request, project_id: UUID) -> Response:
        """Keys, newest first."""
        page = asked_page(request)
        rows = tenants.facade.list_keys(
            self.actor,
            KeyKind.PROJECT,
            project_id,
            with_revoked=False,
            rows_max=page.rows_max,
            after=page.after,
            ascending=page.ascending,
        )
        return Response(page_body(rows, page, render_openai_key))


class OpenAiProjectKeyView(OrganizationKeyView):
    """One key of a project."""

    permissions = {"GET": Permission.KEYS_READ, "DELETE": Permission.KEYS_WRITE}

    @extend_schema(responses=OpenAiProjectKey)
    def get(self, request: Request, project_id: UUID, key_id: UUID) -> Response:
        """The key, without its secret."""
        return Response(render_openai_key(self._found(project_id, key_id)))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, project_id: UUID, key_id: UUID) -> Response:
        """Revoke at once and for good."""
        self._found(project_id, key_id)
        tenants.facade.revoke_key_as(self.actor, key_id)
        return Response(deleted(KEY, key_id))

    def _found(self, project_id: UUID, key_id: UUID) -> KeyInfo:
        found = tenants.facade.read_key(self.actor, key_id)
        if found.project_id != project_id or found.revoked_at is not None:
            raise TenantObjectNotFound("no such key")
        return found


def render_openai_project(project: ProjectInfo) -> dict[str, Any]:
    """`OpenAiProject`."""
    return {
        "object": PROJECT,
        "id": str(project.project_id),
        "name": project.name,
        "status": "active" if project.archived_at is None else "archived",
        "created_at": seconds(project.created_at),
        "archived_at": seconds(project.archived_at),
    }


def render_openai_account(account: ServiceAccount) -> dict[str, Any]:
    """`OpenAiServiceAccount`."""
    return {
        "object": ACCOUNT,
        "id": str(account.service_account_id),
        "name": account.name,
        "role": "member",
        "created_at": seconds(account.created_at),
    }


def render_openai_key(key: KeyInfo) -> dict[str, Any]:
    """`OpenAiProjectKey`."""
    owner_id = key.service_account_id or key.created_by
    owner = {
        "type": "user" if key.service_account_id is None else "service_account",
        "id": None if owner_id is None else str(owner_id),
    }
    return {
        "object": KEY,
        "id": str(key.key_id),
        "name": key.settings.name,
        "redacted_value": f"{key.prefix}...{key.last4}",
        "created_at": seconds(key.created_at),
        "last_used_at": seconds(key.last_used_at),
        "owner": owner,
        "owner_project_access": "active",
    }
