"""`/console/<slug>/settings/delete`: the end of an organization, in the API's two steps.

Nothing is deleted before the second, which wants the organization's slug and the token that the
first one made. Called by the console's routes.
"""

from http import HTTPStatus

from django import forms
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

import tenants.facade
from headrace.console_kit.forms import ConfirmForm
from headrace.console_kit.pages import PageView
from tenants.contracts import Permission
from tenants.contracts.retention import ErasureNotConfirmed

TOKEN_CHARS_MAX = 64


class DeletionForm(ConfirmForm):
    """The second step."""

    token = forms.CharField(max_length=TOKEN_CHARS_MAX, widget=forms.HiddenInput)


class DeletePage(PageView):
    """What goes, what stays, and the two steps."""

    page = "settings"
    title = "Delete the organization"
    needs = writes = Permission.ORGANIZATION_DELETE
    is_sensitive = True
    template = "tenant_console/settings/delete.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """What it means."""
        return self._page()

    def do_ask(self, slug: str) -> HttpResponseBase:
        """The first step: shows the second. Nothing is deleted yet."""
        asked = tenants.facade.request_erasure(self.actor)
        return self._page(DeletionForm(name=slug, initial={"token": asked.token}))

    def do_confirm(self, slug: str) -> HttpResponseBase:
        """The second, for good."""
        form = DeletionForm(self.request.POST, name=slug)
        if form.is_valid():
            try:
                token = form.cleaned_data["token"]
                tenants.facade.confirm_erasure(self.actor, token, form.cleaned_data["confirm"])
                name = self.membership.organization.display_name
                return self.said(f"{name} is being deleted", reverse("console:home"))
            except ErasureNotConfirmed as error:
                form.add_error(None, str(error))
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _page(self, form: DeletionForm | None = None, status: int = HTTPStatus.OK) -> HttpResponse:
        answer = self.show(status=status, form=form, back=self.url("settings"))
        answer["Cache-Control"] = "no-store"
        return answer
