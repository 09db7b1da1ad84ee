"""`/console/<slug>/billing/settings`: automatic top-ups, warnings, and whom invoices are for.

Called by the console's routes.
"""

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import billing.facade
from headrace.console_kit import formats
from headrace.console_kit.forms import KitForm
from headrace.tenant_console.billing.forms import (
    ProfileForm,
    RechargeForm,
    WarningForm,
    profile_shown,
    recharge_shown,
    warning_shown,
)
from headrace.tenant_console.billing.named import BillingView
from tenants.contracts import InvalidValue, Permission

PPM_PER_PERCENT = 10_000


class SettingsPage(BillingView):
    """Three forms, each saved by itself."""

    title = "Billing settings"
    writes = Permission.BILLING_WRITE
    is_sensitive = True
    section = "billing-settings"
    template = "tenant_console/billing/settings.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The settings as they are."""
        return self._page()

    def do_recharge(self, slug: str) -> HttpResponseBase:
        """Sets when credit is bought without asking."""
        form = self._recharge(self.request.POST)
        if form.is_valid():
            asked = form.cleaned_data
            try:
                billing.facade.save_recharge(
                    self.actor,
                    is_enabled=asked["enabled"],
                    threshold_pico=asked["threshold"],
                    amount_pico=asked["amount"],
                    month_max_pico=asked["month_max"],
                )
                is_on = asked["enabled"]
                return self.said(f"Automatic top-up is {'on' if is_on else 'off'}")
            except ValueError as error:
                form.refuse(InvalidValue("amount", str(error)))
        return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, recharge_form=form)

    def do_warning(self, slug: str) -> HttpResponseBase:
        """Sets when to warn, and how lines are split."""
        form = self._warning(self.request.POST)
        if form.is_valid():
            try:
                billing.facade.save_billing_settings(
                    self.actor, form.cleaned_data["low_balance"], form.grouping()
                )
                return self.said("Warnings and invoices are set")
            except ValueError:
                text = "A tag's name has letters, digits, dots, dashes and underscores."
                form.add_error("tag", text)
        return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, warning_form=form)

    def do_profile(self, slug: str) -> HttpResponseBase:
        """Sets whom the next documents are addressed to."""
        form = self._profile(self.request.POST)
        if form.is_valid():
            profile = billing.facade.profile_of(self.organization_id)
            billing.facade.save_profile(self.actor, form.apply(profile))
            return self.said("The next documents are addressed so")
        return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, profile_form=form)

    def _recharge(self, data: Any = None) -> RechargeForm:
        found = billing.facade.recharge_settings(self.organization_id)
        return RechargeForm(data, initial=recharge_shown(found), auto_id="recharge_%s")

    def _warning(self, data: Any = None) -> WarningForm:
        found = billing.facade.billing_settings(self.organization_id)
        return WarningForm(data, initial=warning_shown(found), auto_id="warning_%s")

    def _profile(self, data: Any = None) -> ProfileForm:
        found = billing.facade.profile_of(self.organization_id)
        return ProfileForm(data, initial=profile_shown(found), auto_id="profile_%s")

    def _page(self, status: int = HTTPStatus.OK, **bound: KitForm) -> HttpResponse:
        forms: dict[str, Any] = {
            "recharge_form": bound.get("recharge_form") or self._recharge(),
            "warning_form": bound.get("warning_form") or self._warning(),
            "profile_form": bound.get("profile_form") or self._profile(),
        }
        may_write = self.may(Permission.BILLING_WRITE)
        if not may_write:
            for form in forms.values():
                for field in form.fields.values():
                    field.disabled = True
        found = billing.facade.billing_settings(self.organization_id)
        return self.show(
            status=status,
            recharge=billing.facade.recharge_settings(self.organization_id),
            found=found,
            tax_text=formats.percent_text(found.tax_ppm, 100 * PPM_PER_PERCENT),
            may_write=may_write,
            **forms,
        )
