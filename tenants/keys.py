"""API keys: how a secret is made, checked offline, hashed, looked up and revoked.

A secret has 256 random bits, so a fast hash at rest is right, and a checksum, so that most garbage
is refused without a look-up. Never stores, logs or returns a secret except from `issue_key`.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import connections
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.contracts import (
    IssuedKey,
    KeyIdentity,
    KeyMalformed,
    KeyRejected,
    ProjectArchived,
)
from tenants.models import ApiKey
from tenants.scope import APP_ALIAS, tenant_scope

KEY_PREFIX = "hr-"
RANDOM_BYTES = 32
BODY_LENGTH = 43
CHECKSUM_LENGTH = 6
SECRET_LENGTH = len(KEY_PREFIX) + BODY_LENGTH + CHECKSUM_LENGTH
SHOWN_PREFIX_LENGTH = len(KEY_PREFIX) + 6
HASH_SCHEME = "sha256"
REVOKED_AMONG_MAX = 10_000
"""Keys one poll may ask for; a process has far fewer open streams."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE = re.compile(re.escape(KEY_PREFIX) + rf"[0-9A-Za-z]{{{BODY_LENGTH + CHECKSUM_LENGTH}}}")


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    assert number == 0, "the length must fit the number"
    return "".join(reversed(digits))


def _checksum(unchecked: str) -> str:
    return _base62(zlib.crc32(unchecked.encode("ascii")), CHECKSUM_LENGTH)


def new_secret() -> str:
    """`hr-`, 43 base62 digits of 256 random bits, 6 of their CRC-32."""
    number = int.from_bytes(secrets.token_bytes(RANDOM_BYTES), "big")
    unchecked = KEY_PREFIX + _base62(number, BODY_LENGTH)
    return unchecked + _checksum(unchecked)


def check_format(secret: str) -> None:
    """Raise KeyMalformed unless the text could be one of our keys; looks at the length first."""
    if len(secret) != SECRET_LENGTH or not _SHAPE.fullmatch(secret):
        raise KeyMalformed("not shaped like an API key")
    if not hmac.compare_digest(secret[-CHECKSUM_LENGTH:], _checksum(secret[:-CHECKSUM_LENGTH])):
        raise KeyMalformed("the API key's checksum is wrong")


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret: its SHA-256, 32 bytes."""
    return hashlib.sha256(secret.encode("ascii")).digest()


def authenticate(secret: str) -> KeyIdentity:
    """Who this secret speaks for, in one round trip.

    Raises KeyMalformed without a look-up when it cannot be a key, KeyRejected, always with one
    text, when it is unknown, revoked or expired, and ProjectArchived when only its project is.
    """
    check_format(secret)
    hashed = hash_secret(secret)
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT key_id, project_id, organization_id, organization_slug, currency,"
            " requests_per_minute_max, tokens_per_minute_max, concurrent_requests_max,"
            " expires_at, secret_hash, archived FROM tenants_authenticate(%s, %s)",
            [hashed, HASH_SCHEME],
        )
        row = cursor.fetchone()
    if row is None or not hmac.compare_digest(bytes(row[9]), hashed):
        raise KeyRejected("the API key is not valid")
    if row[10]:
        raise ProjectArchived("the project of this API key is archived")
    return KeyIdentity(*row[:9])


def revoked_among(key_ids: Collection[UUID]) -> frozenset[UUID]:
    """Which of these keys, of any tenants, may not go on: revoked, expired, archived, unknown."""
    assert len(key_ids) <= REVOKED_AMONG_MAX, "too many keys in one poll"
    if not key_ids:
        return frozenset()
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute("SELECT tenants_revoked_among(%s::uuid[])", [list(key_ids)])
        return frozenset(row[0] for row in cursor.fetchall())


def issue_key(
    organization_id: UUID,
    project_id: UUID,
    name: str,
    expires_at: datetime | None = None,
    using: str = APP_ALIAS,
) -> IssuedKey:
    """Make a key; its secret is in the answer and nowhere else.

    Raises IntegrityError when the project is not the organization's.
    """
    secret = new_secret()
    key_id = uuid7()
    with tenant_scope(organization_id, using):
        ApiKey.objects.using(using).create(
            id=key_id,
            organization_id=organization_id,
            project_id=project_id,
            name=name,
            prefix=secret[:SHOWN_PREFIX_LENGTH],
            last4=secret[-4:],
            secret_hash=hash_secret(secret),
            hash_scheme=HASH_SCHEME,
            expires_at=expires_at,
        )
    return IssuedKey(key_id=key_id, secret=secret, prefix=secret[:SHOWN_PREFIX_LENGTH])


def revoke_key(organization_id: UUID, key_id: UUID, using: str = APP_ALIAS) -> None:
    """Revoke at once and for good; revoking again, or an unknown key, changes nothing."""
    with tenant_scope(organization_id, using):
        ApiKey.objects.using(using).filter(
            organization_id=organization_id, id=key_id, revoked_at=None
        ).update(revoked_at=Now())
