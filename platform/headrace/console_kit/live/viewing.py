"""Who looks at a live page, by their session, and whether they still may.

The policy is the pages': a member, with the topic's permission, and with a second factor where the
organization demands one; staff need one in any case. Nothing is cached: `still_looking` asks anew
for all of a process's viewers together, in a handful of queries. Runs on database threads.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from uuid import UUID

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user, get_user_model
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

import tenants.facade
from headrace.console_kit.live.topics import Place
from headrace.request_rates import count_actor
from headrace.sign_in.second_factors import SECOND_FACTORS, has_second_factor
from tenants.contracts import OrganizationNotFound, Permission, Standing


class NotSignedIn(Exception):
    """No session, or one that has ended."""


class NotStaff(Exception):
    """The operator's pages are not for them."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """One who looks, and by what right: `place` None is the operator's."""

    user_id: UUID
    session_key: str
    session_hash: str
    """Changes with the person's password."""
    place: Place | None
    needs: frozenset[Permission]
    """What somebody must be allowed who looks at this."""


def viewer_of(session_key: str, slug: str | None, needs: frozenset[Permission]) -> Viewer:
    """Who may look at an organization's pages, or with slug None at the operator's.

    Raises NotSignedIn, OrganizationNotFound, SecondFactorMissing, PermissionDenied, NotStaff, and
    ApiError 429 for somebody who asks too often.
    """
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not user.is_authenticated or SESSION_KEY not in request.session:
        raise NotSignedIn
    user_id: UUID = user.pk
    count_actor(user_id, "GET")
    has_factor = has_second_factor(user_id)
    place = None
    if slug is not None:
        place = _place(user_id, slug, needs, has_factor=has_factor)
    elif not user.is_staff or not has_factor:
        raise NotStaff
    return Viewer(user_id, session_key, user.get_session_auth_hash(), place, needs)


def _place(user_id: UUID, slug: str, needs: Collection[Permission], *, has_factor: bool) -> Place:
    found = [
        one.organization
        for one in tenants.facade.memberships_of(user_id)
        if one.organization.slug == slug
    ]
    if not found:
        raise OrganizationNotFound("no such organization")
    [organization] = found
    organization_id = organization.organization_id
    actor = tenants.facade.actor_for_user(user_id, organization_id, has_second_factor=has_factor)
    for permission in needs:
        actor.require(permission)
    time_zone = tenants.facade.read_organization(actor).time_zone
    return Place(organization_id, slug, organization.currency, time_zone)


def still_looking(viewers: Collection[Viewer]) -> tuple[set[Viewer], set[Viewer]]:
    """Those of the viewers who are no longer signed in, and those who may no longer see this."""
    people = {viewer.user_id for viewer in viewers}
    keys = [viewer.session_key for viewer in viewers]
    sessions = set(
        Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now()).values_list(
            "session_key", flat=True
        )
    )
    users = {
        user.pk: user for user in get_user_model().objects.filter(pk__in=people, is_active=True)
    }
    with_factor = set(
        Authenticator.objects.filter(user_id__in=people, type__in=SECOND_FACTORS).values_list(
            "user_id", flat=True
        )
    )
    standing = tenants.facade.standing_among(
        {(one.user_id, one.place.organization_id) for one in viewers if one.place is not None}
    )
    gone = {
        one
        for one in viewers
        if one.session_key not in sessions
        or one.user_id not in users
        or users[one.user_id].get_session_auth_hash() != one.session_hash
    }

    def may(one: Viewer) -> bool:
        has_factor = one.user_id in with_factor
        if one.place is None:
            return users[one.user_id].is_staff and has_factor
        stands = standing.get((one.user_id, one.place.organization_id))
        return stands is not None and _may(stands, one.needs, has_factor=has_factor)

    return gone, {one for one in viewers if one not in gone and not may(one)}


def _may(stands: Standing, needs: frozenset[Permission], *, has_factor: bool) -> bool:
    return needs <= stands.permissions and (has_factor or not stands.second_factor_required)
