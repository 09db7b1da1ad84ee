"""Who is calling: credentials out of headers, and a short-lived cache in front of the look-up.

The cache is keyed by the full SHA-256 of the secret and lives for `KEY_CACHE_TTL_S`. It never
decides about money: the hold checks the key's state again, in the database.
"""

import hashlib
import hmac
import time
from collections import OrderedDict
from datetime import UTC, datetime

from django.conf import settings

import tenants.facade
from headrace import errors
from headrace.gateway.database import in_database
from headrace.gateway.transport.http import Scope, header
from tenants.contracts import KeyIdentity, KeyMalformed, KeyRejected, ProjectArchived

_cache: "OrderedDict[bytes, tuple[float, KeyIdentity]]" = OrderedDict()


def secret_from_headers(authorization: str | None, x_api_key: str | None) -> str:
    """The key as sent by OpenAI clients (Bearer) or Anthropic's (x-api-key).

    Raises ApiError 401 if there is none, or if both are sent and differ.
    """
    bearer: str | None = None
    if authorization:
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() != "bearer" or not credentials.strip():
            raise errors.key_missing()
        bearer = credentials.strip()
    if bearer and x_api_key and not hmac.compare_digest(bearer.encode(), x_api_key.encode()):
        raise errors.keys_differ()
    secret = bearer or x_api_key
    if not secret:
        raise errors.key_missing()
    return secret


async def identify(scope: Scope) -> KeyIdentity:
    """The identity behind a request; raises ApiError 401 or 403."""
    identity = await identify_secret(
        secret_from_headers(header(scope, b"authorization"), header(scope, b"x-api-key"))
    )
    _check_asked_tenant(scope, identity)
    return identity


async def identify_secret(secret: str) -> KeyIdentity:
    """The identity behind a key; raises ApiError 401 or 403."""
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
    now = time.monotonic()
    hit = _cache.get(digest)
    if hit is not None and hit[0] > now and not _expired(hit[1]):
        return hit[1]
    try:
        identity = await in_database(tenants.facade.authenticate, secret)
    except (KeyMalformed, KeyRejected):
        _cache.pop(digest, None)
        raise errors.key_invalid() from None
    except ProjectArchived:
        _cache.pop(digest, None)
        raise errors.project_archived() from None
    _cache[digest] = (now + settings.KEY_CACHE_TTL_S, identity)
    _cache.move_to_end(digest)
    while len(_cache) > settings.KEY_CACHE_ENTRIES_MAX:
        _cache.popitem(last=False)
    return identity


def _expired(identity: KeyIdentity) -> bool:
    return identity.expires_at is not None and identity.expires_at <= datetime.now(UTC)


def _check_asked_tenant(scope: Scope, identity: KeyIdentity) -> None:
    asked = header(scope, b"openai-organization")
    if asked and asked not in (identity.organization_slug, str(identity.organization_id)):
        raise errors.tenant_mismatched("organization")
    asked = header(scope, b"openai-project")
    if asked and asked != str(identity.project_id):
        raise errors.tenant_mismatched("project")


def cache_salt(organization_id: str) -> bytes:
    """The tenant's partition of every engine's prefix cache: an HMAC that only we can compute."""
    return hmac.new(
        settings.SECRET_KEY.encode(), b"prefix-cache:" + organization_id.encode(), "sha256"
    ).digest()
