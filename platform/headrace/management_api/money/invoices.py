"""Issued documents and how they are made out, under `/api/v1/organizations/{id}/`.

A document is read and never changed here; its paper is drawn from the same rows each time.
"""

from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import BillingProfile, BillingSettings, Invoice, InvoiceLine
from headrace import errors
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body, Money, money
from headrace.management_api.money.billing import Amount, moment
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import Permission


class PeriodShown(serializers.Serializer[Any]):
    """A span of time: from its start until before its end."""

    start = serializers.DateTimeField()
    end = serializers.DateTimeField()


class LineShown(serializers.Serializer[Any]):
    """One line: the exact amount, and the same rounded to cents, once."""

    position = serializers.IntegerField()
    kind = serializers.CharField()
    model = serializers.CharField(allow_null=True)
    tier = serializers.CharField(allow_null=True)
    token_class = serializers.CharField(allow_null=True)
    group = serializers.CharField(allow_null=True)
    text = serializers.CharField(allow_null=True)
    tokens = serializers.IntegerField()
    price_micros_per_mtok = serializers.IntegerField(allow_null=True)
    exact = Money()
    amount = Money()
    of_period = PeriodShown(allow_null=True)


class InvoiceShown(serializers.Serializer[Any]):
    """A document without its lines: exact + residue_in = net + residue_out."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    kind = serializers.ChoiceField(["invoice", "statement", "credit_note"])
    currency = serializers.CharField()
    time_zone = serializers.CharField()
    period = PeriodShown()
    exact = Money()
    residue_in = Money()
    residue_out = Money()
    net = Money()
    tax_label = serializers.CharField(allow_null=True)
    tax_ppm = serializers.IntegerField()
    tax = Money()
    total = Money()
    due = Money()
    issued_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField(allow_null=True)
    corrects = serializers.UUIDField(allow_null=True)


class ProfileShown(serializers.Serializer[Any]):
    """Whom a document is addressed to."""

    legal_name = serializers.CharField()
    address = serializers.CharField()
    email = serializers.CharField()
    tax_id = serializers.CharField()
    purchase_order = serializers.CharField()


class InvoiceWhole(InvoiceShown):
    """A document with its lines."""

    lines = LineShown(many=True)
    recipient = ProfileShown(allow_null=True)


class SettingsBody(Body):
    """What the tenant says of its bills; a null level is no warning."""

    low_balance = Amount(allow_null=True, required=False)
    group_lines_by = serializers.CharField(max_length=80, allow_blank=True, required=False)
    legal_name = serializers.CharField(max_length=200, allow_blank=True, required=False)
    address = serializers.CharField(max_length=500, allow_blank=True, required=False)
    email = serializers.EmailField(allow_blank=True, required=False)
    tax_id = serializers.CharField(max_length=40, allow_blank=True, required=False)
    purchase_order = serializers.CharField(max_length=80, allow_blank=True, required=False)


class SettingsShown(ProfileShown):
    """The same, with the tax that the operator has set."""

    object = serializers.CharField()
    low_balance = Money(allow_null=True)
    group_lines_by = serializers.CharField(allow_blank=True)
    tax_label = serializers.CharField(allow_null=True)
    tax_ppm = serializers.IntegerField()
    payment_days = serializers.IntegerField()


class InvoicesView(TenantView):
    """Issued documents."""

    permissions = {"GET": Permission.BILLING_READ}

    @extend_schema(responses=page_shown(InvoiceShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Invoices, statements and credit notes, newest first, without their lines."""
        page = asked_page(request)
        rows = billing.facade.invoices(
            organization_id, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_invoice))


class InvoiceView(TenantView):
    """One document."""

    permissions = {"GET": Permission.BILLING_READ}

    @extend_schema(responses=InvoiceWhole)
    def get(self, request: Request, organization_id: UUID, invoice_id: UUID) -> Response:
        """The document with its lines."""
        document = billing.facade.invoice(organization_id, invoice_id)
        recipient = document.recipient
        return Response(
            {
                **render_invoice(document),
                "lines": [_line(line) for line in document.lines],
                "recipient": None if recipient is None else _profile(recipient),
            }
        )


class InvoicePdfView(TenantView):
    """One document on paper."""

    permissions = {"GET": Permission.BILLING_READ}

    @extend_schema(responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, organization_id: UUID, invoice_id: UUID) -> HttpResponse:
        """The document as PDF, the same bytes each time."""
        document = billing.facade.invoice(organization_id, invoice_id)
        paper = billing.facade.invoice_pdf(document, settings.INVOICE_ISSUER)
        name = f"{document.kind.value}-{document.number}.pdf"
        return HttpResponse(
            paper,
            content_type="application/pdf",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )


class BillingSettingsView(TenantView):
    """How the tenant is warned and invoiced."""

    permissions = {"GET": Permission.BILLING_READ, "PATCH": Permission.BILLING_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=SettingsShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """The settings."""
        return Response(_settings(organization_id))

    @extend_schema(request=SettingsBody, responses=SettingsShown)
    def patch(self, request: Request, organization_id: UUID) -> Response:
        """Change what is given; documents that are issued keep what they say."""
        body = self.body(SettingsBody, partial=True)
        before = billing.facade.billing_settings(organization_id)
        low_balance_pico = before.low_balance_pico
        if "low_balance" in body:
            text = body["low_balance"]
            low_balance_pico = None if text is None else billing.facade.parse_decimal(text)
        if {"low_balance", "group_lines_by"} & set(body):
            try:
                billing.facade.save_billing_settings(
                    self.actor,
                    low_balance_pico,
                    body.get("group_lines_by", before.group_lines_by),
                )
            except ValueError as error:
                raise errors.invalid(f"'group_lines_by': {error}.", "group_lines_by") from error
        profile = _profile(billing.facade.profile_of(organization_id))
        given = {name: body[name] for name in profile if name in body}
        if given:
            billing.facade.save_profile(self.actor, BillingProfile(**{**profile, **given}))
        return Response(_settings(organization_id))


def render_invoice(document: Invoice) -> dict[str, Any]:
    """A document as JSON, without its lines."""
    return {
        "object": "billing.invoice",
        "id": str(document.invoice_id),
        "number": document.number,
        "kind": document.kind.value,
        "currency": document.currency,
        "time_zone": document.time_zone,
        "period": {
            "start": document.period_start_at.isoformat(),
            "end": document.period_end_at.isoformat(),
        },
        "exact": money(document.exact_pico),
        "residue_in": money(document.residue_in_pico),
        "residue_out": money(document.residue_out_pico),
        "net": money(document.net_pico),
        "tax_label": document.tax_label or None,
        "tax_ppm": document.tax_ppm,
        "tax": money(document.tax_pico),
        "total": money(document.total_pico),
        "due": money(document.due_pico),
        "issued_at": document.issued_at.isoformat(),
        "due_at": moment(document.due_at),
        "corrects": None if document.corrects is None else str(document.corrects),
    }


def _line(line: InvoiceLine) -> dict[str, Any]:
    of_period = None
    if line.of_period_start_at is not None and line.of_period_end_at is not None:
        of_period = {
            "start": line.of_period_start_at.isoformat(),
            "end": line.of_period_end_at.isoformat(),
        }
    return {
        "position": line.position,
        "kind": line.kind.value,
        "model": line.model or None,
        "tier": line.tier or None,
        "token_class": line.token_class or None,
        "group": line.group or None,
        "text": line.text or None,
        "tokens": line.tokens,
        "price_micros_per_mtok": line.price_micros_per_mtok,
        "exact": money(line.exact_pico),
        "amount": money(line.rounded_pico),
        "of_period": of_period,
    }


def _profile(profile: BillingProfile) -> dict[str, str]:
    return {
        "legal_name": profile.legal_name,
        "address": profile.address,
        "email": profile.email,
        "tax_id": profile.tax_id,
        "purchase_order": profile.purchase_order,
    }


def _settings(organization_id: UUID) -> dict[str, Any]:
    found: BillingSettings = billing.facade.billing_settings(organization_id)
    low = found.low_balance_pico
    return {
        "object": "billing.settings",
        "low_balance": None if low is None else money(low),
        "group_lines_by": found.group_lines_by,
        "tax_label": found.tax_label or None,
        "tax_ppm": found.tax_ppm,
        "payment_days": found.payment_days,
        **_profile(billing.facade.profile_of(organization_id)),
    }
