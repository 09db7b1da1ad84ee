"""A quota as somebody sets it, as forms. Called by the pages beside this."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from django import forms

from billing.contracts import (
    END_USER_LENGTH_MAX,
    QuotaInvalid,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
)
from billing.facade import decimal_string, parse_decimal
from headrace.console_kit.amounts import AMOUNT
from headrace.console_kit.forms import KitForm, LinesField, wear_classes
from headrace.tenant_console.limits.wording import METRICS, PERIODS
from tenants.contracts import InvalidValue

AMOUNT_CHARS_MAX = 40
PREFIX_CHARS_MAX = 64
ONE_END_USER, EACH_END_USER = "end_user", "end_users"
REFUSE, TELL = "refuse", "tell"
FIELDS = {"scope": "whose", "scope_id": "whose"}
"""What the facade names, where the form calls it something else."""


class LimitForm(KitForm):
    """What of a quota may be changed."""

    limit = forms.CharField(
        max_length=AMOUNT_CHARS_MAX,
        label="Limit",
        widget=forms.TextInput({"inputmode": "decimal", "autocomplete": "off"}),
    )
    recipients = LinesField(
        label="Tell also",
        help_text="E-mail addresses of members, one a line, beside those who are told anyway.",
    )
    subject_prefix = forms.CharField(
        max_length=PREFIX_CHARS_MAX,
        required=False,
        label="Start of the mail's subject",
    )

    def refuse_quota(self, error: QuotaInvalid) -> None:
        """Says beside the field at fault why the facade did not take it."""
        self.refuse(InvalidValue(FIELDS.get(error.param, error.param), str(error)))

    def _amount(self, metric: QuotaMetric) -> int | None:
        text: str = self.cleaned_data["limit"]
        if metric is QuotaMetric.SPEND:
            if AMOUNT.fullmatch(text):
                return parse_decimal(text)
            self.add_error("limit", "Write an amount of money such as 50 or 12.50.")
        elif text.isascii() and text.isdecimal():
            return int(text)
        else:
            self.add_error("limit", "Write a whole number without signs, such as 1000000.")
        return None


class ChangeForm(LimitForm):
    """A quota that is in force."""

    def __init__(self, *args: Any, standing: QuotaWanted, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, initial=shown(standing), **kwargs)
        self._standing = standing
        self.fields["limit"].help_text = unit_text(standing.metric, currency)

    def clean(self) -> dict[str, Any]:
        """Adds `wanted`."""
        cleaned = super().clean() or {}
        if "limit" in cleaned and "recipients" in cleaned and "subject_prefix" in cleaned:
            limit = self._amount(self._standing.metric)
            if limit is not None:
                cleaned["wanted"] = replace(
                    self._standing,
                    limit_amount=limit,
                    recipients=cleaned["recipients"],
                    subject_prefix=cleaned["subject_prefix"],
                )
        return cleaned


class NewForm(LimitForm):
    """A new quota."""

    metric = forms.ChoiceField(label="What", choices=[(one.value, METRICS[one]) for one in METRICS])
    period = forms.ChoiceField(label="In", choices=[(one.value, PERIODS[one]) for one in PERIODS])
    effect = forms.ChoiceField(
        label="When it is reached",
        choices=[(REFUSE, "Refuse requests until it resets"), (TELL, "Only tell")],
        widget=forms.RadioSelect,
        initial=REFUSE,
    )
    counts_cached = forms.TypedChoiceField(
        label="Input that comes from the cache",
        choices=[("yes", "Counts"), ("no", "Does not count")],
        coerce=lambda text: text == "yes",
        initial="yes",
        help_text="Of limits of tokens.",
    )
    end_user = forms.CharField(
        max_length=END_USER_LENGTH_MAX,
        required=False,
        label="Name of the end user",
        help_text="Only for a limit of one end user: what your requests send as user.",
    )
    field_order = (
        *("whose", "end_user", "metric", "period", "limit", "effect", "counts_cached"),
        *("recipients", "subject_prefix"),
    )

    def __init__(
        self,
        *args: Any,
        projects: Mapping[UUID, str],
        keys: Mapping[UUID, str],
        currency: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields[
            "limit"
        ].help_text = f"Tokens or requests as a number, spend as an amount in {currency}."
        choices: list[Any] = [
            (QuotaScope.ORGANIZATION.value, "The whole organization"),
            (EACH_END_USER, "Each end user by himself"),
            (ONE_END_USER, "One end user, named below"),
        ]
        for title, kind, found in (("Projects", "project", projects), ("Keys", "key", keys)):
            if found:
                options = [(f"{kind}:{one}", name) for one, name in found.items()]
                choices.append((title, options))
        self.fields["whose"] = forms.ChoiceField(label="Whose requests", choices=choices)
        wear_classes(self.fields["whose"])
        self.order_fields(self.field_order)

    def clean(self) -> dict[str, Any]:
        """Adds `wanted`."""
        cleaned = super().clean() or {}
        if cleaned.get("whose") == ONE_END_USER and not cleaned.get("end_user"):
            self.add_error("end_user", "Name the end user.")
        if not self.errors:
            limit = self._amount(QuotaMetric(cleaned["metric"]))
            if limit is not None:
                cleaned["wanted"] = self._wanted(cleaned, limit)
        return cleaned

    def _wanted(self, cleaned: dict[str, Any], limit: int) -> QuotaWanted:
        kind, _, scope_id = cleaned["whose"].partition(":")
        is_one = kind == ONE_END_USER
        return QuotaWanted(
            scope=QuotaScope.END_USER if kind == EACH_END_USER else QuotaScope(kind),
            metric=QuotaMetric(cleaned["metric"]),
            period=QuotaPeriod(cleaned["period"]),
            limit_amount=limit,
            scope_id=UUID(scope_id) if scope_id else None,
            end_user=cleaned["end_user"] if is_one else "",
            is_hard=cleaned["effect"] == REFUSE,
            counts_cached=cleaned["counts_cached"],
            recipients=cleaned["recipients"],
            subject_prefix=cleaned["subject_prefix"],
        )


def shown(wanted: QuotaWanted) -> dict[str, Any]:
    """What a form of a quota begins with."""
    is_money = wanted.metric is QuotaMetric.SPEND
    limit = decimal_string(wanted.limit_amount) if is_money else str(wanted.limit_amount)
    return {
        "limit": limit,
        "recipients": wanted.recipients,
        "subject_prefix": wanted.subject_prefix,
    }


def unit_text(metric: QuotaMetric, currency: str) -> str:
    """What the number counts."""
    return f"In {currency}." if metric is QuotaMetric.SPEND else f"{METRICS[metric]}."
