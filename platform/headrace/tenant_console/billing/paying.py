"""`/console/<slug>/billing/top-up`: how much to pay in; then the provider's page takes over.

Moves no money: credit follows the payment. Called by the console's routes.
"""

from http import HTTPStatus
from uuid import uuid4

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import billing.facade
from billing.contracts import PICO, TopUpConflict, TopUpUnavailable
from headrace.console_kit import formats
from headrace.tenant_console.billing.forms import TopUpForm
from headrace.tenant_console.billing.named import BillingView, available_pico, not_paid
from tenants.contracts import InvalidValue, Permission

CHOICES = (10, 25, 50, 100, 250)
"""Amounts one click away, in whole units."""

SENT_BEFORE = "This page was sent before, with another amount. Send it again if you want both."


class TopUpPage(BillingView):
    """Chooses the amount."""

    title = "Top up"
    needs = Permission.BILLING_WRITE
    writes = Permission.BILLING_WRITE
    is_sensitive = True
    template = "tenant_console/billing/top_up.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?amount=25` fills it in; who must prove who they are does so before."""
        if not self.signed_in_lately():
            return self.prove_again()
        amount = request.GET.get("amount", "")
        return self._page(self._form(amount))

    def do_pay(self, slug: str) -> HttpResponseBase:
        """Begins the payment and goes to where it is made."""
        form = TopUpForm(self.request.POST, currency=self.currency)
        if not form.is_valid():
            return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)
        try:
            started = billing.facade.begin_topup(
                self.actor,
                form.cleaned_data["amount"],
                form.cleaned_data["key"],
                f"{settings.PUBLIC_URL}{self.url('billing')}",
            )
        except ValueError as wrong:
            form.refuse(InvalidValue("amount", str(wrong)))
            return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)
        except TopUpConflict:
            fresh = self._form(self.request.POST["amount"])
            return self._page(fresh, HTTPStatus.CONFLICT, error=SENT_BEFORE)
        except TopUpUnavailable as away:
            return self._page(form, HTTPStatus.SERVICE_UNAVAILABLE, error=not_paid(away))
        if not started.payment_url:
            return self.said("This top-up is paid already", self.url("billing"))
        return self.go(started.payment_url)

    def _form(self, amount: str) -> TopUpForm:
        return TopUpForm(initial={"amount": amount, "key": uuid4().hex}, currency=self.currency)

    def _page(self, form: TopUpForm, status: int = HTTPStatus.OK, error: str = "") -> HttpResponse:
        account = billing.facade.balance(self.organization_id)
        chosen = form["amount"].value()
        return self.show(
            status=status,
            form=form,
            error=error,
            available_pico=available_pico(account),
            choices=[
                (
                    formats.money_text(units * PICO, self.currency).removesuffix(".00"),
                    self.url("billing-top-up", amount=units),
                    chosen == str(units),
                )
                for units in CHOICES
            ],
        )
