"""`/console/<slug>/webhooks/new`, `/edit` and `/rotate`: endpoints made, changed, given secrets.

A secret is in the answer to the form that made it and nowhere else. Called by the console's routes.
"""

from http import HTTPStatus
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import tenants.facade
from headrace.tenant_console.webhooks.forms import EndpointForm, shown
from headrace.tenant_console.webhooks.listing import known_kinds
from headrace.tenant_console.webhooks.named import WebhooksView
from tenants.contracts import InvalidValue, Permission, TenantConflict
from tenants.contracts.events import WebhookEndpoint

SHOWN_ONCE = "tenant_console/webhooks/secret.html"


class EndpointView(WebhooksView):
    """A page that sets an endpoint; who must prove who they are does so before filling it in."""

    needs = writes = Permission.WEBHOOKS_WRITE
    is_sensitive = True

    def show_secret(self, endpoint: WebhookEndpoint, secret: str, *, is_new: bool) -> HttpResponse:
        """The secret, this once."""
        answer = self.show(
            SHOWN_ONCE,
            title="Endpoint created" if is_new else "Secret rotated",
            endpoint=endpoint,
            secret=secret,
            is_new=is_new,
            href=self.url("webhook", endpoint.endpoint_id),
        )
        answer["Cache-Control"] = "no-store"
        return answer


class WebhookNewPage(EndpointView):
    """The form, and the endpoint it made."""

    title = "New endpoint"
    template = "tenant_console/webhooks/edit.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponseBase:
        """The form."""
        if not self.signed_in_lately():
            return self.prove_again()
        return self._page(EndpointForm(known=known_kinds()))

    def do_create(self, slug: str) -> HttpResponseBase:
        """Makes it, and shows its secret."""
        form = EndpointForm(self.request.POST, known=known_kinds())
        if form.is_valid():
            asked = form.cleaned_data
            try:
                made = tenants.facade.create_webhook_endpoint(
                    self.actor, asked["url"], asked["kinds"], asked["description"]
                )
                return self.show_secret(made.endpoint, made.secret, is_new=True)
            except InvalidValue as error:
                form.refuse(error)
            except TenantConflict as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _page(self, form: EndpointForm, status: int = HTTPStatus.OK) -> HttpResponse:
        return self.show(
            status=status,
            form=form,
            do="create",
            label="Create endpoint",
            back=self.url("webhooks"),
        )


class WebhookEditPage(EndpointView):
    """Another address, other kinds."""

    title = "Edit endpoint"
    template = "tenant_console/webhooks/edit.html"

    def get(self, request: HttpRequest, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """The form."""
        if not self.signed_in_lately():
            return self.prove_again()
        endpoint = tenants.facade.webhook_endpoint(self.actor, webhook_id)
        return self._page(endpoint, self._form(endpoint))

    def do_save(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """Changes what the form changed."""
        endpoint = tenants.facade.webhook_endpoint(self.actor, webhook_id)
        form = self._form(endpoint, self.request.POST)
        if form.is_valid():
            try:
                tenants.facade.change_webhook_endpoint(self.actor, webhook_id, **form.changed)
                return self.said("The endpoint is changed", self.url("webhook", webhook_id))
            except InvalidValue as error:
                form.refuse(error)
        return self._page(endpoint, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _form(self, endpoint: WebhookEndpoint, data: object = None) -> EndpointForm:
        return EndpointForm(data, initial=shown(endpoint), known=known_kinds())

    def _page(
        self, endpoint: WebhookEndpoint, form: EndpointForm, status: int = HTTPStatus.OK
    ) -> HttpResponse:
        back = self.url("webhook", endpoint.endpoint_id)
        return self.show(status=status, form=form, do="save", label="Save", back=back)


class WebhookRotatePage(EndpointView):
    """A new secret."""

    title = "Rotate the secret"
    template = "tenant_console/webhooks/rotate.html"

    def get(self, request: HttpRequest, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """What will happen."""
        if not self.signed_in_lately():
            return self.prove_again()
        endpoint = tenants.facade.webhook_endpoint(self.actor, webhook_id)
        return self.show(endpoint=endpoint, back=self.url("webhook", webhook_id))

    def do_rotate(self, slug: str, webhook_id: UUID) -> HttpResponseBase:
        """Makes it, and shows it."""
        secret = tenants.facade.rotate_webhook_secret(self.actor, webhook_id)
        endpoint = tenants.facade.webhook_endpoint(self.actor, webhook_id)
        return self.show_secret(endpoint, secret, is_new=False)
