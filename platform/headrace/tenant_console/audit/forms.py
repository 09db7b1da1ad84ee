"""Which entries of the log are asked for: the filters of the page, as they stand in its address.

Called by the page beside this.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django import forms

import tenants.facade
from headrace.console_kit.forms import KitForm, check_year, wear_classes

TEXT_CHARS_MAX = 128
ACTIONS = (
    *("alias.changed", "alias.created", "alias.deleted", "credit.granted", "end_user.forgotten"),
    *("erasure.confirmed", "erasure.requested", "export.downloaded", "export.requested"),
    *("invitation.accepted", "invitation.created", "invitation.revoked"),
    *("key.created", "key.imported", "key.revoked", "key.rotated", "key.updated"),
    *("limit.changed", "limit.lifted", "member.added", "member.removed", "role.changed"),
    *("organization.created", "organization.updated", "price.set"),
    *("project.archived", "project.created", "project.renamed"),
    *("service_account.created", "service_account.disabled", "topup.begun"),
    *("user.email_changed", "user.password_changed", "user.second_factor_added"),
    *("user.second_factor_removed", "user.sign_in_failed", "user.signed_in", "user.signed_out"),
    *("webhook.changed", "webhook.created", "webhook.deleted", "webhook.secret_rotated"),
)
"""Offered while one types; any other may be typed."""
KINDS = (
    *("alias", "export", "invitation", "key", "organization", "project", "quota"),
    *("service_account", "user", "webhook"),
)


class DayField(forms.DateField):
    """A day, by the browser's own control."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateInput({"type": "date"}, format="%Y-%m-%d")
        super().__init__(widget=widget, input_formats=["%Y-%m-%d"], required=False, **kwargs)

    def to_python(self, value: Any) -> date | None:
        """Raises ValidationError for what is no day."""
        day: date | None = super().to_python(value)
        check_year(day)
        return day


class AuditForm(KitForm):
    """All filters; empty is any."""

    action = forms.CharField(
        max_length=TEXT_CHARS_MAX,
        required=False,
        widget=forms.TextInput({"list": "actions", "autocomplete": "off"}),
    )
    kind = forms.CharField(
        label="Kind of object",
        max_length=TEXT_CHARS_MAX,
        required=False,
        widget=forms.TextInput({"list": "kinds", "autocomplete": "off"}),
    )
    object = forms.CharField(label="Object's id", max_length=TEXT_CHARS_MAX, required=False)
    since = DayField(label="From")
    until = DayField(label="To, inclusive")
    field_order = ("actor", "action", "kind", "object", "since", "until")

    def __init__(self, *args: Any, actors: Mapping[UUID, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["actor"] = forms.TypedChoiceField(
            label="Who",
            choices=[("", "Anybody"), *actors.items()],
            coerce=UUID,
            empty_value=None,
            required=False,
        )
        wear_classes(self.fields["actor"])
        self.order_fields(self.field_order)

    def wanted(self, zone: ZoneInfo) -> tenants.facade.AuditFilter:
        """The entries; days begin in `zone`."""
        asked = self.cleaned_data
        day = timedelta(days=1)
        return tenants.facade.AuditFilter(
            actions=(asked["action"],) if asked["action"] else (),
            actor_id=asked["actor"],
            target_kind=asked["kind"] or None,
            target_id=asked["object"] or None,
            since=_midnight(asked["since"], zone),
            until=_midnight(asked["until"] + day, zone) if asked["until"] else None,
        )

    @property
    def asked(self) -> dict[str, str]:
        """The filters that are set, for other addresses of the page."""
        return {name: self.data[name] for name in self.fields if self.data.get(name)}


def _midnight(day: date | None, zone: ZoneInfo) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), zone)
