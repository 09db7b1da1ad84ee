"""What the maker of a key decides, as forms.

A field that is left as it was changes nothing, so that two people's changes do not undo each
other. Called by the pages beside this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django import forms

from headrace.console_kit.forms import (
    KitForm,
    LinesField,
    MomentField,
    choices_of,
    limit_fields,
    limits_asked,
    limits_shown,
    wear_classes,
)
from tenants.contracts import KeyScope, KeySettings, Permission

NAME_CHARS_MAX = 120
OWN, END_USERS = "limits", "end_user_limits"


class AnyKeyForm(KitForm):
    """What keys of both kinds have."""

    name = forms.CharField(max_length=NAME_CHARS_MAX, label="Name")
    cidrs = LinesField(
        label="Networks",
        help_text="The only networks it may be used from, one a line, as 10.0.0.0/8. Empty is all.",
    )

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["expires_at"] = MomentField(
            zone, label="Expires", required=False, help_text=f"In {zone} time. Empty is never."
        )
        wear_classes(self.fields["expires_at"])

    def apply(self, settings: KeySettings) -> KeySettings:
        """The settings with what the form changed."""
        names = {"name", "cidrs", "expires_at"} & set(self.changed)
        return replace(settings, **{name: self.cleaned_data[name] for name in names})


class KeyForm(AnyKeyForm):
    """A project's key."""

    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=choices_of(scope.value for scope in KeyScope),
        widget=forms.CheckboxSelectMultiple,
        help_text="What it may call.",
    )

    def __init__(self, *args: Any, models: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["models"] = forms.MultipleChoiceField(
            label="Models",
            choices=choices_of(models),
            widget=forms.CheckboxSelectMultiple,
            required=False,
            help_text="The only models it may use. None ticked is all, those to come with them.",
        )
        self.fields |= limit_fields(OWN) | limit_fields(END_USERS)
        for field in self.fields.values():
            wear_classes(field)

    @property
    def own_limits(self) -> list[forms.BoundField]:
        """Of the key as a whole."""
        return [self[name] for name in limit_fields(OWN)]

    @property
    def end_user_limits(self) -> list[forms.BoundField]:
        """Of each of its end users."""
        return [self[name] for name in limit_fields(END_USERS)]

    @property
    def has_limits(self) -> bool:
        """Whether any limit is set, or wrong: then they are not folded away."""
        limits = [*self.own_limits, *self.end_user_limits]
        return any(one.value() not in (None, "") or one.errors for one in limits)

    def apply(self, settings: KeySettings) -> KeySettings:
        """The settings with what the form changed."""
        changed, cleaned = self.changed, self.cleaned_data
        given: dict[str, Any] = {}
        if "scopes" in changed:
            given["scopes"] = frozenset(KeyScope(scope) for scope in cleaned["scopes"])
        if "models" in changed:
            given["models"] = frozenset(cleaned["models"]) or None
        for prefix in (OWN, END_USERS):
            if set(changed) & set(limit_fields(prefix)):
                given[prefix] = limits_asked(cleaned, prefix)
        return replace(super().apply(settings), **given)


class NewKeyForm(KeyForm):
    """And where it belongs."""

    field_order = ("name", "project_id", "service_account_id")

    def __init__(
        self,
        *args: Any,
        projects: Mapping[UUID, str],
        accounts: Mapping[UUID, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project_id"] = forms.TypedChoiceField(
            label="Project", choices=list(projects.items()), coerce=UUID
        )
        self.fields["service_account_id"] = forms.TypedChoiceField(
            label="Used by",
            choices=[("", "People"), *accounts.items()],
            coerce=UUID,
            empty_value=None,
            required=False,
            help_text="A key of a service account stops when the account is disabled.",
        )
        self.order_fields(self.field_order)
        for field in self.fields.values():
            wear_classes(field)


class NewAdminKeyForm(AnyKeyForm):
    """A key that administers, and what it may do."""

    def __init__(self, *args: Any, allowed: Iterable[Permission], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = choices_of(sorted(permission.value for permission in allowed))
        self.fields["permissions"] = forms.MultipleChoiceField(
            label="Permissions",
            choices=choices,
            widget=forms.CheckboxSelectMultiple,
            help_text="What it may do in the organization.",
        )
        wear_classes(self.fields["permissions"])


def shown(settings: KeySettings) -> dict[str, Any]:
    """What a form of these settings begins with."""
    return {
        "name": settings.name,
        "scopes": sorted(settings.scopes),
        "models": sorted(settings.models or ()),
        "cidrs": settings.cidrs,
        "expires_at": settings.expires_at,
        **limits_shown(settings.limits, OWN),
        **limits_shown(settings.end_user_limits, END_USERS),
    }
