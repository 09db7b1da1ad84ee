"""Who looks at a live page, by their session: as the pages themselves decide it.

Runs on a database thread. Called by the live socket.
"""

from dataclasses import dataclass, replace

import tenants.facade
from headrace.console_kit.live.topics import Place
from headrace.request_rates import count_actor
from headrace.sign_in.second_factors import has_second_factor
from headrace.sign_in.sittings import Sitting, check_staff, signed_in_by
from tenants.contracts import OrganizationNotFound, Permission


@dataclass(frozen=True, slots=True)
class Viewer:
    """One who looks; `place` None is at the operator's pages."""

    sitting: Sitting
    place: Place | None


def viewer_of(session_key: str, slug: str | None, needs: frozenset[Permission]) -> Viewer:
    """Who may look at an organization's pages, or with slug None at the operator's.

    Raises NotSignedIn, OrganizationNotFound, SecondFactorMissing, PermissionDenied, NotStaff, and
    ApiError 429 for somebody who asks too often.
    """
    sitting = signed_in_by(session_key)
    count_actor(sitting.user_id, "GET")
    if slug is None:
        check_staff(sitting)
        return Viewer(sitting, None)
    found = [
        one.organization
        for one in tenants.facade.memberships_of(sitting.user_id)
        if one.organization.slug == slug
    ]
    if not found:
        raise OrganizationNotFound("no such organization")
    [organization] = found
    actor = tenants.facade.actor_for_user(
        sitting.user_id,
        organization.organization_id,
        has_second_factor=has_second_factor(sitting.user_id),
    )
    for permission in needs:
        actor.require(permission)
    time_zone = tenants.facade.read_organization(actor).time_zone
    return Viewer(
        replace(sitting, organization_id=organization.organization_id, needs=needs),
        Place(organization.organization_id, slug, organization.currency, time_zone),
    )
