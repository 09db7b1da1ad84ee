"""`/console/<slug>/keys/new`: a new key of a project or of the organization, shown this once.

The secret is in the answer to the form and nowhere else. Called by the console's routes.
"""

from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import tenants.facade
from headrace.tenant_console.keys.forms import NewAdminKeyForm, NewKeyForm
from headrace.tenant_console.keys.named import KeysView
from headrace.tenant_console.keys.snippets import Snippet, chat_snippets, get_snippets
from tenants.contracts import (
    InvalidValue,
    IssuedKey,
    KeyInfo,
    KeyKind,
    KeyScope,
    KeySettings,
    Permission,
    TenantConflict,
    TenantObjectNotFound,
)

MADE = "tenant_console/keys/made.html"


class KeySecretView(KeysView):
    """A page that can show a secret."""

    def show_secret(self, issued: IssuedKey, old: KeyInfo | None = None) -> HttpResponse:
        """The new key, this once; `old` is the one that it replaces."""
        key = tenants.facade.key_made(self.actor, issued)
        answer = self.show(
            MADE,
            title="Key rotated" if old else "Key created",
            key=key,
            secret=issued.secret,
            old=old,
            snippets=self._snippets(key, issued.secret),
            href=self.url("key", key.key_id),
        )
        answer["Cache-Control"] = "no-store"
        return answer

    def _snippets(self, key: KeyInfo, secret: str) -> list[Snippet]:
        if key.kind is KeyKind.ADMIN:
            url = f"{settings.PUBLIC_URL}/api/v1/organizations/{self.organization_id}"
            return get_snippets(url, secret)
        base_url = f"{settings.PUBLIC_URL}/v1"
        if KeyScope.CHAT not in key.settings.scopes:
            return get_snippets(f"{base_url}/models", secret)
        models = sorted(key.settings.models or self.models)
        return chat_snippets(base_url, secret, models[0] if models else "MODEL")


class KeyNewPage(KeySecretView):
    """The form, and the key it made."""

    title = "New API key"
    needs = writes = Permission.KEYS_WRITE
    is_sensitive = True
    template = "tenant_console/keys/new.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The form; who must prove who they are does so before they fill it in."""
        if not self.signed_in_lately():
            return self.prove_again()
        return self._form(self._bound())

    def do_create(self, slug: str) -> HttpResponseBase:
        """Makes the key, and shows its secret."""
        form = self._bound(self.request.POST)
        if form.is_valid():
            try:
                return self.show_secret(self._create(form))
            except InvalidValue as error:
                form.refuse(error)
            except (TenantConflict, TenantObjectNotFound) as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._form(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    @property
    def _is_admin(self) -> bool:
        return self.request.GET.get("kind") == "admin"

    def _bound(self, data: object = None) -> NewKeyForm | NewAdminKeyForm:
        if self._is_admin:
            self.actor.require(Permission.MEMBERS_WRITE)
            return NewAdminKeyForm(data, zone=self.zone, allowed=self.actor.permissions)
        accounts = {
            one.service_account_id: f"{one.name} ({self.project_name(one.project_id)})"
            for one in self.accounts.values()
            if one.service_account_id not in self.closed_ids
            and one.project_id not in self.closed_ids
        }
        return NewKeyForm(
            data,
            zone=self.zone,
            models=self.models,
            projects={one.project_id: one.name for one in self.open_projects},
            accounts=accounts,
            initial={
                "scopes": [scope.value for scope in KeyScope],
                "project_id": self.project.project_id if self.project else None,
            },
        )

    def _create(self, form: NewKeyForm | NewAdminKeyForm) -> IssuedKey:
        asked = form.apply(KeySettings(form.cleaned_data["name"]))
        if isinstance(form, NewAdminKeyForm):
            permissions = frozenset(Permission(one) for one in form.cleaned_data["permissions"])
            return tenants.facade.create_admin_key(
                self.actor, asked.name, permissions, asked.cidrs, asked.expires_at
            )
        return tenants.facade.create_key(
            self.actor,
            form.cleaned_data["project_id"],
            asked,
            form.cleaned_data["service_account_id"],
        )

    def _form(
        self, form: NewKeyForm | NewAdminKeyForm, status: int = HTTPStatus.OK
    ) -> HttpResponse:
        has_project = self._is_admin or bool(self.open_projects)
        return self.show(
            status=status,
            form=form,
            is_admin=self._is_admin,
            has_project=has_project,
            back=self.url("keys", kind="admin" if self._is_admin else None),
        )
