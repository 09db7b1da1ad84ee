"""What the sign-in library asks its host: how mail goes out, whose address it is, what is sealed.

Mail is queued sealed and sent by a worker, so that an answer takes as long for a stranger's
address as for a member's. Secrets of second factors are sealed by a key that is outside the
database. Named in settings; called by allauth.
"""

import base64
from copy import copy
from functools import cache
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db.models import Model
from django.db.models.expressions import DatabaseDefault
from django.http import HttpRequest

import tenants.facade
from headrace.request_origin import address_of


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Accounts of people, who sign in by e-mail address."""

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Queues what allauth's templates say; links lead to the public address, whatever Host
        the request named.
        """
        known = {"request": self.request, "email": email, "current_site": SITE}
        message = self.render_mail(template_prefix, email, known | context)
        asked_of = self.request.build_absolute_uri("/").rstrip("/")
        body = message.body.replace(f"{asked_of}/", f"{settings.PUBLIC_URL}/")
        tenants.facade.send_mail_later(
            None, email, "sign_in", {"subject": message.subject, "body": body}
        )

    def get_client_ip(self, request: HttpRequest) -> str:
        """What attempts are counted by."""
        return address_of(request) or "none"


class ProviderAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Accounts at identity providers."""

    def serialize_instance(self, instance: Model) -> dict[str, Any]:
        """A person not stored yet, for the session: what the database will fill in is no value."""
        known = copy(instance)
        known.__dict__ = {
            name: value
            for name, value in vars(instance).items()
            if not isinstance(value, DatabaseDefault)
        }
        serialized: dict[str, Any] = super().serialize_instance(known)
        return serialized


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no types
    """TOTP secrets and seeds of recovery codes, unreadable in the database alone."""

    def encrypt(self, text: str) -> str:
        """As stored."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Raises cryptography's InvalidToken if SECRET_KEY is another since."""
        return _fernet().decrypt(encrypted_text.encode()).decode()


@cache
def _fernet() -> Fernet:
    derivation = HKDF(SHA256(), length=32, salt=None, info=b"headrace second factor")
    return Fernet(base64.urlsafe_b64encode(derivation.derive(settings.SECRET_KEY.encode())))


SITE = {"name": "Headrace", "domain": settings.PUBLIC_URL}
"""What mail calls us."""
