"""Who is calling: credentials out of headers, and a short-lived cache in front of the look-up.

The cache is keyed by the full SHA-256 of the secret and lives for `KEY_CACHE_TTL_S`, and no longer
than the key: an expiry or the end of a grace counts at its very instant. It never decides about
money: the hold checks the key's state again, in the database.
"""

import hashlib
import hmac
import time
from collections import OrderedDict
from datetime import UTC, datetime
from functools import lru_cache

from django.conf import settings

import tenants.facade
from headrace import errors
from headrace.client_address import Network, client_address, parse_networks, within
from headrace.gateway.admission.failed_lookups import FailedLookups
from headrace.gateway.database import in_database
from headrace.gateway.transport.http import Scope, header
from tenants.contracts import KeyIdentity, KeyKind, KeyRejected, KeyScope, TenantError

failed_lookups = FailedLookups(settings.FAILED_LOOKUPS_PER_MINUTE_MAX)
"""Of this process: the token routes, the socket and the REST views count together."""
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


async def identify(scope: Scope, needed: KeyScope | None = None) -> KeyIdentity:
    """The identity behind a request of a project's key that has the scope `needed`, if any.

    Raises ApiError 401, 403 or 429.
    """
    identity = await identify_secret(
        secret_from_headers(header(scope, b"authorization"), header(scope, b"x-api-key")),
        address_of(scope),
    )
    check_asked_tenant(
        identity, header(scope, b"openai-organization"), header(scope, b"openai-project")
    )
    require_scope(identity, needed)
    return identity


async def identify_secret(secret: str, address: str = "") -> KeyIdentity:
    """The identity behind a key that is used from `address`; raises ApiError 401, 403 or 429."""
    digest = _digest(secret)
    now = time.monotonic()
    hit = _cache.get(digest)
    if hit is not None and hit[0] > now and not _expired(hit[1]):
        check_network(hit[1], address)
        return hit[1]
    failed_lookups.check(address, digest)
    try:
        identity = await in_database(tenants.facade.authenticate, secret)
    except TenantError as error:
        _cache.pop(digest, None)
        raise _refused(error, address, digest) from None
    failed_lookups.worked(digest)
    _cache[digest] = (now + settings.KEY_CACHE_TTL_S, identity)
    _cache.move_to_end(digest)
    while len(_cache) > settings.KEY_CACHE_ENTRIES_MAX:
        _cache.popitem(last=False)
    check_network(identity, address)
    return identity


def authenticate(secret: str, address: str) -> KeyIdentity:
    """The same without the cache, for synchronous views; raises ApiError 401, 403 or 429."""
    digest = _digest(secret)
    failed_lookups.check(address, digest)
    try:
        identity = tenants.facade.authenticate(secret)
    except TenantError as error:
        raise _refused(error, address, digest) from None
    failed_lookups.worked(digest)
    check_network(identity, address)
    return identity


def _refused(error: TenantError, address: str, digest: bytes) -> Exception:
    """What a key's refusal looks like; one that is not there is counted against its address."""
    if isinstance(error, KeyRejected):
        failed_lookups.failed(address, digest)
    return errors.from_domain(error) or error


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def require_scope(identity: KeyIdentity, needed: KeyScope | None) -> None:
    """Raises ApiError 403 for an admin key, and for a project's key without the scope."""
    if identity.kind is KeyKind.ADMIN:
        raise errors.insufficient_permissions("An admin API key cannot be used for inference.")
    if needed is not None and needed not in identity.scopes:
        raise errors.insufficient_permissions(f"This API key lacks the scope '{needed}'.")


def check_asked_tenant(
    identity: KeyIdentity, organization: str | None, project: str | None
) -> None:
    """Raises ApiError 401 where OpenAI-Organization or OpenAI-Project is not the key's own."""
    if organization and organization not in (
        identity.organization_slug,
        str(identity.organization_id),
    ):
        raise errors.tenant_mismatched("organization")
    if project and project != str(identity.project_id):
        raise errors.tenant_mismatched("project")


def check_network(identity: KeyIdentity, address: str) -> None:
    """Raises ApiError 403 where the key may not be used from this address."""
    if identity.cidrs and not within(address, _networks(identity.cidrs)):
        raise errors.insufficient_permissions("This API key may not be used from your address.")


def address_of(scope: Scope) -> str:
    """The client's address; '' where the connection has none."""
    peer = scope.get("client")
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    return client_address(
        peer[0] if peer else "", forwarded.decode("latin-1"), settings.TRUSTED_PROXIES
    )


@lru_cache(maxsize=1024)
def _networks(cidrs: tuple[str, ...]) -> tuple[Network, ...]:
    return parse_networks(cidrs)


def _expired(identity: KeyIdentity) -> bool:
    return identity.expires_at is not None and identity.expires_at <= datetime.now(UTC)


def cache_salt(organization_id: str, project_id: str | None = None) -> bytes:
    """The tenant's partition of every engine's prefix cache: an HMAC that only we can compute.

    A project is given where the organization's projects share nothing either.
    """
    whose = organization_id if project_id is None else f"{organization_id}:{project_id}"
    return hmac.new(
        settings.SECRET_KEY.encode(), b"prefix-cache:" + whose.encode(), "sha256"
    ).digest()
