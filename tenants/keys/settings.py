"""What a key may be set to, checked and turned into columns, and a row shown without its hash.

Pure. Called by the key's life and by service accounts.
"""

from ipaddress import ip_network
from typing import Any

from tenants.contracts import (
    InvalidValue,
    KeyInfo,
    KeyKind,
    KeyScope,
    KeySettings,
    Permission,
)
from tenants.events.mail import fits_a_subject
from tenants.models import ApiKey
from tenants.models.keys import MODEL_CHARS_MAX
from tenants.models.people import NAME_CHARS_MAX
from tenants.organizations.minute_limits import limits_from_json, limits_to_json

CIDRS_MAX = 100
MODELS_MAX = 200


def checked_name(name: str, param: str = "name") -> str:
    """A name for people to read; raises InvalidValue."""
    stripped = name.strip()
    if not 1 <= len(stripped) <= NAME_CHARS_MAX or not stripped.isprintable():
        raise InvalidValue(param, f"a name has 1 to {NAME_CHARS_MAX} printable characters")
    return stripped


def checked_display_name(name: str) -> str:
    """An organization's name, which begins subjects of mail; raises InvalidValue."""
    checked = checked_name(name, "display_name")
    if not fits_a_subject(checked):
        raise InvalidValue("display_name", "a name does not look like an address on the web")
    return checked


def columns_of(settings: KeySettings) -> dict[str, Any]:  # each column has its own type
    """The columns that say it; raises InvalidValue."""
    return {
        "name": checked_name(settings.name),
        "scopes": _scopes(settings.scopes),
        "allowed_models": _models(settings.models),
        "cidrs": _networks(settings.cidrs),
        "expires_at": settings.expires_at,
        "limits": limits_to_json(settings.limits, "limits"),
        "end_user_limits": limits_to_json(settings.end_user_limits, "end_user_limits"),
    }


def key_info(row: ApiKey) -> KeyInfo:
    """What is shown of a key."""
    return KeyInfo(
        key_id=row.id,
        kind=KeyKind(row.kind),
        project_id=row.project_id,
        service_account_id=row.service_account_id,
        created_by=row.created_by,
        prefix=row.prefix,
        last4=row.last4,
        settings=KeySettings(
            name=row.name,
            scopes=scopes_from(row.scopes),
            models=None if row.allowed_models is None else frozenset(row.allowed_models),
            cidrs=tuple(row.cidrs),
            expires_at=row.expires_at,
            limits=limits_from_json(row.limits),
            end_user_limits=limits_from_json(row.end_user_limits),
        ),
        permissions=allowed_from(row.permissions),
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        revoke_at=row.revoke_at,
        replaced_by=row.replaced_by,
    )


def scopes_from(stored: list[str] | None) -> frozenset[KeyScope]:
    """Scopes of a row; one that no version knows any more allows nothing."""
    if stored is None:
        return frozenset(KeyScope)
    return frozenset(scope for scope in KeyScope if scope.value in stored)


def allowed_from(stored: list[str]) -> frozenset[Permission]:
    """Permissions of a row, in the same way."""
    return frozenset(permission for permission in Permission if permission.value in stored)


def _scopes(scopes: frozenset[KeyScope]) -> list[str] | None:
    if not scopes:
        raise InvalidValue("scopes", "a key needs at least one scope")
    return None if scopes == frozenset(KeyScope) else sorted(scope.value for scope in scopes)


def _models(models: frozenset[str] | None) -> list[str] | None:
    if models is None:
        return None
    if not 1 <= len(models) <= MODELS_MAX:
        raise InvalidValue("models", f"name 1 to {MODELS_MAX} models, or leave it null for all")
    if any(not 1 <= len(model) <= MODEL_CHARS_MAX or not model.isprintable() for model in models):
        raise InvalidValue("models", f"a model's id has 1 to {MODEL_CHARS_MAX} characters")
    return sorted(models)


def _networks(cidrs: tuple[str, ...]) -> list[str]:
    if len(cidrs) > CIDRS_MAX:
        raise InvalidValue("cidrs", f"at most {CIDRS_MAX} networks")
    try:
        return sorted({str(ip_network(cidr)) for cidr in cidrs})
    except ValueError as error:
        raise InvalidValue("cidrs", f"not a network: {error}") from None
