"""Whether a person has a second factor. Asked anew for each request of a session, never cached."""

from collections.abc import Sequence
from uuid import UUID

from allauth.mfa.models import Authenticator

SECOND_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def has_second_factor(user_id: UUID) -> bool:
    """An authenticator app or a security key; recovery codes alone are none."""
    found = Authenticator.objects.filter(user_id=user_id, type__in=SECOND_FACTORS)
    return bool(found.exists())


def second_factors_among(user_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Those of the people who have one."""
    found = Authenticator.objects.filter(user_id__in=user_ids, type__in=SECOND_FACTORS)
    return frozenset(found.values_list("user_id", flat=True))
