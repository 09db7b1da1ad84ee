"""`/console/<slug>/limits/new` and `/limits/<quota_id>`: a quota is tried, set, changed, lifted.

Trying one changes nothing: its address holds the whole form. Called by the console's routes.
"""

from http import HTTPStatus
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import billing.facade
import tenants.facade
from billing.contracts import Quota, QuotaInvalid, QuotaNotFound, QuotaScope, QuotaWanted
from headrace.tenant_console.limits.forms import ChangeForm, LimitForm, NewForm
from headrace.tenant_console.limits.meters import subject_meter
from headrace.tenant_console.limits.named import LimitsView
from headrace.tenant_console.limits.previews import Preview, preview_of
from headrace.tenant_console.limits.wording import amount, what, whose
from tenants.contracts import KeyKind, Permission

KEYS_OFFERED_MAX = 200


class TryingView(LimitsView):
    """A page on which a limit is tried."""

    def preview(self, wanted: QuotaWanted | None) -> Preview | None:
        """What it would have done; None where there is nothing to try."""
        if wanted is None or (wanted.scope is QuotaScope.END_USER and not wanted.end_user):
            return None
        found = billing.facade.preview_quota(
            self.organization_id, wanted, self.now, self.organization.time_zone
        )
        return preview_of(found, self.currency, self.zone)

    def tried(self, form: LimitForm) -> Preview | None:
        """Of a form that was sent to be tried; what is wrong with it is said in it."""
        return self.preview(form.cleaned_data.get("wanted")) if form.is_valid() else None


class LimitNewPage(TryingView):
    """Another quota."""

    title = "New limit"
    needs = Permission.LIMITS_WRITE
    writes = Permission.LIMITS_WRITE
    is_sensitive = True
    template = "tenant_console/limits/new.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?preview=1` with the fields tries them; without it they are filled in."""
        if not self.signed_in_lately():
            return self.prove_again()
        if "preview" not in request.GET:
            asked = {name: request.GET[name] for name in request.GET}
            return self._page(self._form(initial=asked))
        form = self._form(request.GET)
        return self._page(form, preview=self.tried(form), is_tried=True)

    def do_create(self, slug: str) -> HttpResponseBase:
        """Sets it; one for the same thing goes."""
        form = self._form(self.request.POST)
        if form.is_valid():
            try:
                made = billing.facade.set_quota(self.actor, form.cleaned_data["wanted"])
                return self.said("The limit is set", self.url("limit", made.quota_id))
            except QuotaInvalid as error:
                form.refuse_quota(error)
            except QuotaNotFound:
                form.add_error("whose", "This is not there any more.")
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _form(self, data: object = None, **options: object) -> NewForm:
        keys: dict[UUID, str] = {}
        if self.may(Permission.KEYS_READ):
            found = tenants.facade.list_keys(
                self.actor, KeyKind.PROJECT, with_revoked=False, rows_max=KEYS_OFFERED_MAX
            )
            keys = {one.key_id: f"{one.settings.name} …{one.last4}" for one in found}
        return NewForm(
            data,
            projects={one.project_id: one.name for one in self.projects},
            keys=keys,
            currency=self.currency,
            **options,
        )

    def _page(
        self,
        form: NewForm,
        status: int = HTTPStatus.OK,
        preview: Preview | None = None,
        *,
        is_tried: bool = False,
    ) -> HttpResponse:
        back = self.url("limits")
        return self.show(
            status=status,
            form=form,
            preview=preview,
            has_no_preview=is_tried and form.is_valid() and preview is None,
            back=back,
        )


class LimitPage(TryingView):
    """A quota in force."""

    title = "Limit"
    writes = Permission.LIMITS_WRITE
    is_sensitive = True
    template = "tenant_console/limits/limit.html"

    def get(self, request: HttpRequest, slug: str, quota_id: UUID) -> HttpResponse:
        """`?preview=1&limit=` tries another amount."""
        quota = self.quota(quota_id)
        if "preview" not in request.GET:
            return self._page(quota, self._form(quota), preview=self.preview(quota.wanted))
        form = self._form(quota, request.GET)
        return self._page(quota, form, preview=self.tried(form), is_tried=True)

    def do_change(self, slug: str, quota_id: UUID) -> HttpResponseBase:
        """Another amount, other recipients."""
        quota = self.quota(quota_id)
        form = self._form(quota, self.request.POST)
        if form.is_valid():
            try:
                billing.facade.change_quota(self.actor, quota_id, form.cleaned_data["wanted"])
                return self.said("The limit is changed", self.url("limit", quota_id))
            except QuotaInvalid as error:
                form.refuse_quota(error)
        return self._page(quota, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def do_lift(self, slug: str, quota_id: UUID) -> HttpResponseBase:
        """Takes it out of force."""
        self.quota(quota_id)
        billing.facade.lift_quota(self.actor, quota_id)
        return self.said("The limit is lifted", self.url("limits"))

    def _form(self, quota: Quota, data: object = None) -> ChangeForm:
        return ChangeForm(data, standing=quota.wanted, currency=self.currency)

    def _page(
        self,
        quota: Quota,
        form: ChangeForm,
        status: int = HTTPStatus.OK,
        preview: Preview | None = None,
        *,
        is_tried: bool = False,
    ) -> HttpResponse:
        wanted = quota.wanted
        return self.show(
            status=status,
            title=f"{whose(wanted, self.names)}: {what(wanted).lower()}",
            quota=quota,
            limit=amount(wanted.metric, wanted.limit_amount, self.currency),
            meters=[
                subject_meter(quota, one, self.currency, f"subject-{place}", one.end_user)
                for place, one in enumerate(quota.subjects)
            ],
            is_each=wanted.scope is QuotaScope.END_USER and not wanted.end_user,
            setter=self.setter(quota),
            form=form,
            preview=preview,
            is_tried=is_tried,
            back=self.url("limits"),
        )
