"""Whom to invite, and as what.

Offers the roles that the viewer may give; whether they may is the facade's to say. Called by the
pages beside this.
"""

from collections.abc import Iterable
from typing import Any

from django import forms

from headrace.console_kit.forms import KitForm, wear_classes
from tenants.contracts import Role

ROLE_WORDS = {
    Role.OWNER: "everything, deleting the organization too",
    Role.ADMIN: "everything but deleting the organization",
    Role.DEVELOPER: "keys, jobs, requests and the playground",
    Role.BILLING: "balance, invoices and payments",
    Role.VIEWER: "looks at usage, keys, limits and jobs",
}
DAYS_MAX = 30


class RoleForm(KitForm):
    """A role among those that may be given."""

    def __init__(self, *args: Any, roles: Iterable[Role], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(role.value, f"{role.value}: {ROLE_WORDS[role]}") for role in roles]
        self.fields["role"] = forms.TypedChoiceField(label="Role", choices=choices, coerce=Role)
        wear_classes(self.fields["role"])


class InvitationForm(RoleForm):
    """An address, a role, and for how long the offer stands."""

    email = forms.EmailField(label="E-mail address", max_length=254)
    expires_after_days = forms.IntegerField(
        label="Days to accept", min_value=1, max_value=DAYS_MAX, initial=7
    )
    field_order = ("email", "role", "expires_after_days")

    def __init__(self, *args: Any, roles: Iterable[Role], **kwargs: Any) -> None:
        super().__init__(*args, roles=roles, **kwargs)
        self.order_fields(self.field_order)
