"""`/operator/tenants/<id>`: one tenant's standing, and what is the operator's to set of it."""

from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.functional import cached_property

import billing.facade
import tenants.facade
from billing.contracts import AccountMissing, Balance
from headrace.console_kit.forms import LIMIT_LABELS, ConfirmForm, limits_asked, limits_shown
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.operator_console.orders.shapes import OrderKind
from headrace.operator_console.pages import ZONE, OperatorView
from headrace.operator_console.tenancy.agreed import names_table, own_prices
from headrace.operator_console.tenancy.forms import CreditLimitForm, GrantForm, TenantLimitsForm
from headrace.operator_console.tenancy.grants import grants_table
from headrace.operator_console.tenancy.listing import status_badge
from tenants.contracts import OrganizationSettings, OrganizationStatus


class TenantPage(OperatorView):
    """Raises OrganizationNotFound, 404, for none of this id."""

    page = "tenants"
    title = "Tenant"
    template = "operator_console/tenants/tenant.html"

    def prepare(self) -> None:
        """Finds the tenant."""
        super().prepare()
        self.organization_id: UUID = self.kwargs["organization_id"]
        self.tenant: OrganizationSettings = tenants.facade.read_organization(
            self.actor_in(self.organization_id)
        )

    def get(self, request: HttpRequest, organization_id: UUID) -> HttpResponse:
        """Its standing, and the forms; `?request=` leads to a request's receipt."""
        wanted = request.GET.get("request", "").strip()
        if wanted:
            return self._receipt(wanted)
        return self._page()

    def _receipt(self, wanted: str) -> HttpResponse:
        request_id = parse_request_id(wanted)
        if request_id is None:
            return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, wanted=wanted)
        public_id = public_request_id(request_id)
        return self.go(self.url("receipt", self.organization_id, public_id))

    def do_grant(self, organization_id: UUID) -> HttpResponse:
        """Credit."""
        form = self._grant_form(self.request.POST)
        if not form.is_valid():
            return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, grant_form=form)
        expires_at = form.cleaned_data["expires_at"]
        return self._order(
            OrderKind.GRANT_CREDIT,
            amount_pico=str(form.cleaned_data["amount"]),
            reference=form.cleaned_data["reference"],
            category=form.cleaned_data["category"],
            expires_at=expires_at.isoformat() if expires_at else None,
        )

    def do_credit_limit(self, organization_id: UUID) -> HttpResponse:
        """How far it may owe."""
        form = CreditLimitForm(self.request.POST)
        if not form.is_valid():
            return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, owe_form=form)
        return self._order(OrderKind.SET_CREDIT_LIMIT, limit_pico=str(form.cleaned_data["limit"]))

    def do_minute_limits(self, organization_id: UUID) -> HttpResponse:
        """The organization's own."""
        form = TenantLimitsForm(self.request.POST)
        if not form.is_valid():
            return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, limits_form=form)
        limits = asdict(limits_asked(form.cleaned_data))
        return self._order(OrderKind.SET_MINUTE_LIMITS, limits=limits)

    def do_suspend(self, organization_id: UUID) -> HttpResponse:
        """Its keys infer nothing from then on."""
        form = ConfirmForm(self.request.POST, name=self.tenant.slug)
        if not form.is_valid():
            return self._page(HTTPStatus.UNPROCESSABLE_ENTITY, suspend_form=form)
        return self._order(OrderKind.SET_STATUS, status=OrganizationStatus.SUSPENDED.value)

    def do_resume(self, organization_id: UUID) -> HttpResponse:
        """As before it was suspended."""
        return self._order(OrderKind.SET_STATUS, status=OrganizationStatus.ACTIVE.value)

    def _order(self, kind: OrderKind, **asked: object) -> HttpResponse:
        return self.order(kind, organization_id=str(self.organization_id), **asked)

    def _grant_form(self, posted: QueryDict | None = None) -> GrantForm:
        return GrantForm(posted, zone=ZONE)

    @cached_property
    def balance(self) -> Balance | None:
        """None where no account was opened."""
        try:
            return billing.facade.balance(self.organization_id)
        except AccountMissing:
            return None

    def _page(self, status: int = HTTPStatus.OK, **forms: Any) -> HttpResponse:
        tenant, balance = self.tenant, self.balance
        may_owe_pico = None if balance is None else -balance.floor_pico
        return self.show(
            status=status,
            **{
                "tenant": tenant,
                "standing": status_badge(tenant.status),
                "is_active": tenant.status is OrganizationStatus.ACTIVE,
                "is_suspended": tenant.status is OrganizationStatus.SUSPENDED,
                "balance": balance,
                "may_owe_pico": may_owe_pico,
                "overview": billing.facade.usage_overview(
                    self.organization_id, self.now, tenant.time_zone
                ),
                "limits": [
                    (label, getattr(tenant.limits, name)) for name, label in LIMIT_LABELS.items()
                ],
                "own_prices": own_prices(self.actor_in(self.organization_id)),
                "names": names_table(self.actor_in(self.organization_id)),
                "grants": grants_table(self.organization_id, balance),
                "is_demo": balance is not None and billing.facade.is_demo(self.organization_id),
                "grant_form": self._grant_form(),
                "owe_form": CreditLimitForm(initial={"limit": may_owe_pico}),
                "limits_form": TenantLimitsForm(initial=limits_shown(tenant.limits)),
                "suspend_form": ConfirmForm(name=tenant.slug),
                **forms,
            },
        )
