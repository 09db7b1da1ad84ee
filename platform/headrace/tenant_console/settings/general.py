"""`/console/<slug>/settings`: what members decide for the whole organization.

Called by the console's routes.
"""

import zoneinfo
from http import HTTPStatus
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import tenants.facade
from headrace.console_kit.forms import KitForm, LinesField
from headrace.console_kit.pages import PageView
from tenants.contracts import InvalidValue, Permission

NAME_CHARS_MAX = 120
DAYS_MAX = 365


class SettingsForm(KitForm):
    """All of them; what is left as it was stays."""

    display_name = forms.CharField(label="Name", max_length=NAME_CHARS_MAX)
    time_zone = forms.ChoiceField(
        label="Time zone",
        choices=lambda: [(name, name) for name in sorted(zoneinfo.available_timezones())],
        help_text="Where its days and months begin: of reports, quotas and invoices.",
    )
    cost_tags = LinesField(
        label="Cost tags",
        help_text="Keys of a request's metadata that usage is split by, one a line.",
    )
    cache_per_project = forms.BooleanField(
        label="Projects share no cached prefixes",
        required=False,
        help_text="Prompts of one project are then never cheaper because of another's.",
    )
    prompts_kept_days = forms.IntegerField(
        label="Days to keep prompts and answers",
        min_value=1,
        max_value=DAYS_MAX,
        required=False,
        help_text="Empty keeps none, which is the default.",
    )
    second_factor_required = forms.BooleanField(
        label="Members must have a second factor",
        required=False,
        help_text="Who has none sees nothing here until they add one. Keys are not asked.",
    )

    @property
    def general(self) -> list[forms.BoundField]:
        """How it is called, and when its days begin."""
        return [self["display_name"], self["time_zone"]]

    @property
    def requests(self) -> list[forms.BoundField]:
        """What becomes of its requests."""
        return [self["cost_tags"], self["prompts_kept_days"], self["cache_per_project"]]

    @property
    def access(self) -> list[forms.BoundField]:
        """Who may come in."""
        return [self["second_factor_required"]]


class OrganizationPage(PageView):
    """The settings, and the ways to what is beyond them."""

    page = "settings"
    title = "Settings"
    needs = Permission.ORGANIZATION_READ
    writes = Permission.ORGANIZATION_WRITE
    is_sensitive = True
    template = "tenant_console/settings/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """As they are."""
        return self._page(self._bound())

    def do_save(self, slug: str) -> HttpResponseBase:
        """Sets what the form changed."""
        form = self._bound(self.request.POST)
        if form.is_valid():
            try:
                tenants.facade.update_organization(self.actor, **form.changed)
                return self.said("Settings are saved")
            except InvalidValue as error:
                form.refuse(error)
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _bound(self, data: object = None) -> SettingsForm:
        settings = self.organization
        initial: dict[str, Any] = {
            name: getattr(settings, name) for name in SettingsForm.base_fields
        }
        form = SettingsForm(data, initial=initial)
        form.fields["second_factor_required"].disabled = not self.actor.has_second_factor
        if not self.may(Permission.ORGANIZATION_WRITE):
            for field in form.fields.values():
                field.disabled = True
        return form

    def _page(self, form: SettingsForm, status: int = HTTPStatus.OK) -> HttpResponse:
        return self.show(
            status=status,
            form=form,
            may_write=self.may(Permission.ORGANIZATION_WRITE),
            may_export=self.may(Permission.DATA_EXPORT),
            may_delete=self.may(Permission.ORGANIZATION_DELETE),
            has_second_factor=self.actor.has_second_factor,
        )
