"""`/console/<slug>/keys/<id>`: one key, its rotation, its end, and what may be changed about it.

Called by the console's routes.
"""

from http import HTTPStatus
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import billing.facade
import tenants.facade
from headrace.console_kit.forms import ConfirmForm, KitForm
from headrace.tenant_console.keys.forms import AnyKeyForm, KeyForm, shown
from headrace.tenant_console.keys.listing import DAYS, sparked
from headrace.tenant_console.keys.making import KeySecretView
from headrace.tenant_console.keys.named import KeysView
from headrace.tenant_console.keys.states import limits_text, models_text, scopes_text
from tenants.contracts import (
    InvalidValue,
    KeyInfo,
    KeyKind,
    Permission,
    TenantConflict,
    TenantObjectNotFound,
)

GRACES = (
    (0, "at once"),
    (3600, "in an hour"),
    (24 * 3600, "in a day"),
    (7 * 24 * 3600, "in 7 days"),
    (30 * 24 * 3600, "in 30 days"),
)


class KeyPage(KeysView):
    """What a key is, and its end."""

    title = "API key"
    needs = Permission.KEYS_READ
    writes = Permission.KEYS_WRITE
    template = "tenant_console/keys/key.html"

    def get(self, request: HttpRequest, slug: str, key_id: UUID) -> HttpResponse:
        """The key, without its secret."""
        key = tenants.facade.read_key(self.actor, key_id)
        return self._page(key, ConfirmForm(name=key.settings.name))

    def do_revoke(self, slug: str, key_id: UUID) -> HttpResponseBase:
        """Ends it, where its name was typed."""
        key = tenants.facade.read_key(self.actor, key_id)
        form = ConfirmForm(self.request.POST, name=key.settings.name)
        if not form.is_valid():
            return self._page(key, form, HTTPStatus.UNPROCESSABLE_ENTITY)
        tenants.facade.revoke_key_as(self.actor, key_id)
        return self.said(f"{key.settings.name} is revoked", self.url("keys", **_kind(key)))

    def _page(self, key: KeyInfo, revoke: ConfirmForm, status: int = HTTPStatus.OK) -> HttpResponse:
        used = billing.facade.key_activity(
            self.organization_id, self.now, str(self.zone), [key.key_id]
        )
        activity = used.get(key.key_id)
        state = self.state(key)
        return self.show(
            status=status,
            title=key.settings.name,
            key=key,
            state=state,
            is_project_key=key.kind is KeyKind.PROJECT,
            project=self.project_name(key.project_id),
            account=self.account_name(key.service_account_id),
            maker=self._maker(key),
            scopes=scopes_text(key.settings.scopes),
            models=models_text(key.settings.models),
            limits=limits_text(key.settings.limits),
            end_user_limits=limits_text(key.settings.end_user_limits),
            permissions=sorted(key.permissions),
            requests=sum(activity.requests) if activity else 0,
            tokens=sum(activity.tokens) if activity else 0,
            spark=sparked(list(activity.requests) if activity else [0] * DAYS),
            back=self.url("keys", **_kind(key)),
            edit_href=self.url("key-edit", key.key_id),
            successor_href=self.url("key", key.replaced_by) if key.replaced_by else "",
            usage_href=self.url("usage", key=key.key_id) if self._has_usage(key) else "",
            may_write=self.may(Permission.KEYS_WRITE),
            may_rotate=state.works and key.replaced_by is None,
            rotate_href=self.url("key-rotate", key.key_id),
            revoke=revoke,
        )

    def _has_usage(self, key: KeyInfo) -> bool:
        return key.kind is KeyKind.PROJECT and self.may(Permission.USAGE_READ)

    def _maker(self, key: KeyInfo) -> str:
        if key.created_by is None:
            return "the operator"
        if not self.may(Permission.MEMBERS_READ):
            return "a member"
        try:
            return tenants.facade.read_member(self.actor, key.created_by).email
        except TenantObjectNotFound:
            return "a former member"


class RotateForm(KitForm):
    """How long the old key works beside its successor."""

    grace_s = forms.TypedChoiceField(
        label="The old key stops",
        choices=GRACES,
        coerce=int,
        initial=24 * 3600,
        help_text="Until then both keys work. The end can be brought forward by revoking it.",
    )


class KeyRotatePage(KeySecretView):
    """A new secret for the same purpose."""

    title = "Rotate key"
    needs = writes = Permission.KEYS_WRITE
    is_sensitive = True
    template = "tenant_console/keys/rotate.html"

    def get(self, request: HttpRequest, slug: str, key_id: UUID) -> HttpResponse:
        """What a rotation does, and how long the old key works beside the new one."""
        key = tenants.facade.read_key(self.actor, key_id)
        if not self.signed_in_lately():
            return self.prove_again()
        return self._form(key, RotateForm())

    def do_rotate(self, slug: str, key_id: UUID) -> HttpResponseBase:
        """Makes the successor, and shows its secret."""
        form = RotateForm(self.request.POST)
        if not form.is_valid():
            key = tenants.facade.read_key(self.actor, key_id)
            return self._form(key, form, HTTPStatus.UNPROCESSABLE_ENTITY)
        try:
            issued = tenants.facade.rotate_key(self.actor, key_id, form.cleaned_data["grace_s"])
        except TenantConflict as error:
            return self.refused(f"This cannot be done: {error}.", self.url("key", key_id))
        return self.show_secret(issued, tenants.facade.read_key(self.actor, key_id))

    def _form(self, key: KeyInfo, form: RotateForm, status: int = HTTPStatus.OK) -> HttpResponse:
        return self.show(
            status=status,
            title=f"Rotate {key.settings.name}",
            form=form,
            key=key,
            back=self.url("key", key.key_id),
        )


class KeyEditPage(KeysView):
    """What may be changed."""

    title = "Edit key"
    needs = writes = Permission.KEYS_WRITE
    is_sensitive = True
    template = "tenant_console/keys/edit.html"

    def get(self, request: HttpRequest, slug: str, key_id: UUID) -> HttpResponse:
        """The form; who must prove who they are does so before they fill it in."""
        key = tenants.facade.read_key(self.actor, key_id)
        if not self.signed_in_lately():
            return self.prove_again()
        return self._form(key, self._bound(key))

    def do_save(self, slug: str, key_id: UUID) -> HttpResponseBase:
        """Changes what the form changed, from the next request on."""
        key = tenants.facade.read_key(self.actor, key_id)
        form = self._bound(key, self.request.POST)
        if form.is_valid():
            try:
                changed = tenants.facade.update_key(self.actor, key_id, form.apply)
                return self.said(f"{changed.settings.name} is saved", self.url("key", key_id))
            except InvalidValue as error:
                form.refuse(error)
            except TenantConflict as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._form(key, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _bound(self, key: KeyInfo, data: object = None) -> AnyKeyForm:
        initial = shown(key.settings)
        if key.kind is KeyKind.ADMIN:
            return AnyKeyForm(data, zone=self.zone, initial=initial)
        models = sorted({*self.models, *(key.settings.models or ())})
        return KeyForm(data, zone=self.zone, models=models, initial=initial)

    def _form(self, key: KeyInfo, form: AnyKeyForm, status: int = HTTPStatus.OK) -> HttpResponse:
        return self.show(
            status=status,
            title=f"Edit {key.settings.name}",
            form=form,
            key=key,
            back=self.url("key", key.key_id),
        )


def _kind(key: KeyInfo) -> dict[str, str]:
    return {"kind": "admin"} if key.kind is KeyKind.ADMIN else {}
