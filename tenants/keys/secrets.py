"""API keys: how a secret is made, checked offline, hashed and looked up.

A secret has 256 random bits, so a fast hash at rest is right, and a checksum, so that most garbage
is refused without a look-up. Secrets imported from LiteLLM (`sk-...`) have no checksum. Never
stores or logs a secret. Called at every door by which keys come in.
"""

import hashlib
import hmac
import json
import re
import secrets
import zlib
from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import connections

from tenants.contracts import (
    NO_LIMITS,
    NO_PROJECT,
    KeyIdentity,
    KeyKind,
    KeyMalformed,
    KeyRefusal,
    KeyRejected,
    MinuteLimits,
    OrganizationStatus,
    OrganizationSuspended,
    ProjectArchived,
)
from tenants.keys.settings import allowed_from, scopes_from
from tenants.organizations.minute_limits import limits_from_json
from tenants.scope import APP_ALIAS

KEY_PREFIX = "hr-"
RANDOM_BYTES = 32
BODY_LENGTH = 43
CHECKSUM_LENGTH = 6
SECRET_LENGTH = len(KEY_PREFIX) + BODY_LENGTH + CHECKSUM_LENGTH
SHOWN_PREFIX_LENGTH = len(KEY_PREFIX) + 6
HASH_SCHEME = "sha256"
IMPORTED_PREFIX = "sk-"
IMPORTED_HASH_SCHEME = "litellm-sha256"
IMPORTED_LENGTH_MAX = 256
HOUSEKEEPER_ALIAS = "housekeeper"
REVOKED_AMONG_MAX = 10_000
"""Keys one poll may ask for; a process has far fewer open streams."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE = re.compile(re.escape(KEY_PREFIX) + rf"[0-9A-Za-z]{{{BODY_LENGTH + CHECKSUM_LENGTH}}}")

_IMPORTED_SHAPE = re.compile(re.escape(IMPORTED_PREFIX) + r"[0-9A-Za-z_.\-]{8,253}")


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


def check_format(secret: str) -> str:
    """The scheme by which a text that could be a key is hashed; looks at the length first.

    Raises KeyMalformed for any other.
    """
    if len(secret) == SECRET_LENGTH and _SHAPE.fullmatch(secret):
        if hmac.compare_digest(secret[-CHECKSUM_LENGTH:], _checksum(secret[:-CHECKSUM_LENGTH])):
            return HASH_SCHEME
        raise KeyMalformed("the API key's checksum is wrong")
    if len(secret) <= IMPORTED_LENGTH_MAX and _IMPORTED_SHAPE.fullmatch(secret):
        return IMPORTED_HASH_SCHEME
    raise KeyMalformed("not shaped like an API key")


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret: its SHA-256, 32 bytes."""
    return hashlib.sha256(secret.encode("ascii")).digest()


def authenticate(secret: str) -> KeyIdentity:
    """Who this secret speaks for, in one round trip.

    Raises KeyMalformed without a look-up when it cannot be a key, KeyRejected, always with one
    text, when it is unknown, revoked or expired, and ProjectArchived or OrganizationSuspended when
    only that is.
    """
    scheme = check_format(secret)
    return identity_behind(hash_secret(secret), scheme)


def identity_behind(hashed: bytes, scheme: str) -> KeyIdentity:
    """The same for a stored hash; raises what `authenticate` raises."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute("SELECT * FROM tenants_authenticate(%s, %s)", [hashed, scheme])
        row = cursor.fetchone()
        names = [column.name for column in cursor.description]
    if row is None or not hmac.compare_digest(bytes(row[0]), hashed):
        raise KeyRejected("the API key is not valid")
    found = dict(zip(names, row, strict=True))
    # An admin key of a suspended organization still looks and pays.
    tolerated = {OrganizationStatus.ACTIVE} | (
        {OrganizationStatus.SUSPENDED} if found["kind"] == KeyKind.ADMIN else set()
    )
    if found["status"] not in tolerated:
        raise OrganizationSuspended("the organization of this API key is suspended")
    if found["archived"]:
        raise ProjectArchived("the project of this API key is archived")
    return _identity(found)


def _identity(found: dict[str, Any]) -> KeyIdentity:  # each column has its own type
    kind = KeyKind(found["kind"])
    models: list[str] | None = found["models"]
    return KeyIdentity(
        key_id=found["key_id"],
        project_id=found["project_id"] or NO_PROJECT,
        organization_id=found["organization_id"],
        organization_slug=found["organization_slug"],
        currency=found["currency"],
        requests_per_minute_max=found["requests_per_minute_max"],
        tokens_per_minute_max=found["tokens_per_minute_max"],
        concurrent_requests_max=found["concurrent_requests_max"],
        expires_at=found["ends_at"],
        kind=kind,
        scopes=scopes_from(found["scopes"]) if kind is KeyKind.PROJECT else frozenset(),
        permissions=allowed_from(found["permissions"]),
        models=None if models is None else frozenset(models),
        cidrs=tuple(found["cidrs"]),
        project_limits=_limits(found["project_limits"]),
        key_limits=_limits(found["key_limits"]),
        end_user_limits=_limits(found["end_user_limits"]),
        cost_tags=frozenset(found["cost_tags"]),
        time_zone=found["time_zone"],
        cache_per_project=found["cache_per_project"],
        prompts_kept_days=found["prompts_kept_days"],
        input_tokens_per_minute_max=found["input_tokens_per_minute_max"],
        output_tokens_per_minute_max=found["output_tokens_per_minute_max"],
    )


def _limits(stored: str | None) -> MinuteLimits:
    """Raw cursors give JSON as text."""
    return limits_from_json(json.loads(stored)) if stored and stored != "{}" else NO_LIMITS


def revoked_among(key_ids: Collection[UUID]) -> frozenset[UUID]:
    """Which of these keys, of any tenants, may not go on: revoked, expired, archived, unknown."""
    assert len(key_ids) <= REVOKED_AMONG_MAX, "too many keys in one poll"
    if not key_ids:
        return frozenset()
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute("SELECT tenants_revoked_among(%s::uuid[])", [list(key_ids)])
        return frozenset(row[0] for row in cursor.fetchall())


def key_refusal(organization_id: UUID, project_id: UUID, key_id: UUID) -> KeyRefusal | None:
    """Why a project's key may not go on, as the hold decides it; None if it may.

    For workers: asked as housekeeper.
    """
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT tenants_key_refusal(%s, %s, %s)", [organization_id, project_id, key_id]
        )
        return KeyRefusal(refusal) if (refusal := cursor.fetchone()[0]) else None
