"""What an admin key may not do for itself or for another: get out of its own expiry and networks.

Its permissions are looked after where everybody's are. Called by the life of a key.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from ipaddress import IPv4Network, ip_network

from tenants.contracts import Actor, ActorKind, InvalidValue, KeySettings, TenantConflict
from tenants.models import ApiKey


def acting_key(actor: Actor, using: str) -> ApiKey | None:
    """The key that acts; None for people and for the operator."""
    if actor.kind is not ActorKind.API_KEY:
        return None
    assert actor.actor_id is not None
    return ApiKey.objects.using(using).get(organization_id=actor.organization_id, id=actor.actor_id)


def inherited(settings: KeySettings, maker: ApiKey | None) -> KeySettings:
    """The settings of a new admin key; what is not given it has from the key that makes it."""
    if maker is None:
        return settings
    return replace(
        settings,
        expires_at=settings.expires_at or maker.ends_at,
        cidrs=settings.cidrs or tuple(maker.cidrs),
    )


def require_another(maker: ApiKey | None, row: ApiKey) -> None:
    """Raises TenantConflict for a key that would change itself."""
    if maker is not None and maker.line == row.line:
        raise TenantConflict("a key neither changes nor rotates itself: it may only be revoked")


def require_within(maker: ApiKey | None, expires_at: datetime | None, cidrs: Sequence[str]) -> None:
    """An admin key by the hand of another: raises InvalidValue for more time or wider networks."""
    if maker is None:
        return
    if maker.ends_at is not None and (expires_at is None or expires_at > maker.ends_at):
        raise InvalidValue("expires_at", "later than the key's that asks")
    if maker.cidrs and not (cidrs and all(_is_inside(cidr, maker.cidrs) for cidr in cidrs)):
        raise InvalidValue("cidrs", "wider than the key's that asks")


def _is_inside(cidr: str, wider: Sequence[str]) -> bool:
    network = ip_network(cidr)
    for one in map(ip_network, wider):
        if isinstance(network, IPv4Network):
            if isinstance(one, IPv4Network) and network.subnet_of(one):
                return True
        elif not isinstance(one, IPv4Network) and network.subnet_of(one):
            return True
    return False
