"""`/console/<slug>/keys/accounts`: programs that have keys of their own in a project.

Called by the console's routes.
"""

from http import HTTPStatus
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.forms import KitForm, wear_classes
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.keys.named import KeysView
from tenants.contracts import (
    InvalidValue,
    Permission,
    ServiceAccount,
    TenantConflict,
    TenantObjectNotFound,
)


class AccountForm(KitForm):
    """A program's account, in which project."""

    name = forms.CharField(max_length=120, label="Name")

    def __init__(self, *args: object, projects: dict[UUID, str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project_id"] = forms.TypedChoiceField(
            label="Project", choices=list(projects.items()), coerce=UUID
        )
        wear_classes(self.fields["project_id"])


class AccountsPage(KeysView):
    """All service accounts."""

    title = "Service accounts"
    needs = Permission.KEYS_READ
    writes = Permission.KEYS_WRITE
    template = "tenant_console/keys/accounts.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The list, and the form for another."""
        return self._page(self._bound())

    def do_create(self, slug: str) -> HttpResponseBase:
        """An account without keys yet."""
        form = self._bound(self.request.POST)
        if form.is_valid():
            try:
                made = tenants.facade.create_service_account(
                    self.actor, form.cleaned_data["project_id"], form.cleaned_data["name"]
                )
                return self.said(f"{made.name} is there. Create a key for it next")
            except InvalidValue as error:
                form.refuse(error)
            except (TenantConflict, TenantObjectNotFound) as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def do_disable(self, slug: str) -> HttpResponseBase:
        """Stops its keys, for good."""
        account_id = self.posted_id("account_id")
        tenants.facade.disable_service_account(self.actor, account_id)
        return self.said("The account is disabled, its keys have stopped")

    def _bound(self, data: object = None) -> AccountForm:
        return AccountForm(data, projects={one.project_id: one.name for one in self.open_projects})

    def _page(self, form: AccountForm, status: int = HTTPStatus.OK) -> HttpResponse:
        may_write = self.may(Permission.KEYS_WRITE)
        accounts = [
            one
            for one in self.accounts.values()
            if self.project is None or one.project_id == self.project.project_id
        ]
        columns = [
            Column("Name"),
            Column("Project", hides=True),
            Column("Since", hides=True),
            Column("State"),
        ]
        if may_write:
            columns.append(Column("Actions", is_hidden_title=True, is_number=True))
        rows = [self._row(one, may_write=may_write) for one in accounts]
        return self.show(
            status=status,
            form=form,
            table=Table("Service accounts", columns, rows),
            may_write=may_write,
        )

    def _row(self, account: ServiceAccount, *, may_write: bool) -> Row:
        works = account.service_account_id not in self.closed_ids
        cells: list[object] = [
            account.name,
            self.project_name(account.project_id),
            formats.moment(account.created_at, self.zone),
            badge("active", "green") if works else badge("disabled", "gray"),
        ]
        if may_write:
            cells.append(self._end(account) if works else "")
        return Row(cells, is_muted=not works)

    def _end(self, account: ServiceAccount) -> SafeString:
        template = "tenant_console/keys/disable.html"
        name = f"disable-{account.service_account_id}"
        context = {"account": account, "dialog": name}
        return SafeString(render_to_string(template, context, self.request))
