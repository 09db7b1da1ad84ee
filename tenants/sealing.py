"""Sealing what must be kept and read again: webhook secrets, waiting mail, kept prompts.

Fernet (AES-CBC with an HMAC) with a key per purpose, derived from SECRET_KEY, which lives outside
the database: a dump alone opens nothing. Changing SECRET_KEY makes sealed values unreadable.
Called inside `tenants` only.
"""

import base64
import enum
from functools import cache

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from tenants.contracts import SealBroken


class Purpose(enum.StrEnum):
    """What a value is sealed for: one purpose's values do not open as another's."""

    WEBHOOK_SECRET = "webhook secret"  # noqa: S105 - a name, not a secret
    MAIL = "mail"
    IDEMPOTENT_ANSWER = "idempotent answer"
    EXCHANGE = "exchange"


def seal(value: bytes, purpose: Purpose) -> bytes:
    """What may be stored of the value."""
    return _fernet(purpose).encrypt(value)


def unseal(sealed: bytes | memoryview, purpose: Purpose) -> bytes:
    """The value; raises SealBroken when it was sealed otherwise, or altered."""
    try:
        return _fernet(purpose).decrypt(bytes(sealed))
    except InvalidToken as error:
        raise SealBroken(f"a stored {purpose} does not open") from error


@cache
def _fernet(purpose: Purpose) -> Fernet:
    derivation = HKDF(SHA256(), length=32, salt=None, info=f"headrace {purpose}".encode())
    return Fernet(base64.urlsafe_b64encode(derivation.derive(settings.SECRET_KEY.encode())))
