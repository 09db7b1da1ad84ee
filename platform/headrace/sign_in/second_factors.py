"""Whether a person has a second factor. Asked anew for each request of a session, never cached."""

from uuid import UUID

from allauth.mfa.models import Authenticator


def has_second_factor(user_id: UUID) -> bool:
    """An authenticator app or a security key; recovery codes alone are none."""
    kinds = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    return bool(Authenticator.objects.filter(user_id=user_id, type__in=kinds).exists())
