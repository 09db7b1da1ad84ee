"""Somebody at an open socket by their session, and whether they still may be there.

A request is judged once, a socket stays: so all who sit in a process are asked about together and
again, in a handful of queries, and nothing is cached. The policy is the pages': signed in, a
member with what they need, with a second factor where the organization demands one; staff need one
in any case. Runs on database threads; called by the sockets that a session opens.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from uuid import UUID

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user, get_user_model
from django.contrib.sessions.models import Session
from django.http import HttpRequest, parse_cookie
from django.utils import timezone

import tenants.facade
from headrace.sign_in.second_factors import SECOND_FACTORS
from tenants.contracts import Permission


class NotSignedIn(Exception):
    """No session, or one that has ended."""


class NotStaff(Exception):
    """This is for staff with a second factor."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """Who sits where, and by what right: `organization_id` None is at the operator's pages."""

    user_id: UUID
    session_key: str
    session_hash: str
    """Changes with the person's password."""
    organization_id: UUID | None
    needs: frozenset[Permission]
    """What they must be allowed."""


def session_key_in(cookies: str | None) -> str:
    """The session's key among the cookies of a handshake; '' where there is none."""
    session_key: str = parse_cookie(cookies or "").get(settings.SESSION_COOKIE_NAME, "")
    return session_key


def signed_in_by(session_key: str) -> Sitting:
    """Somebody who has not sat down anywhere yet; raises NotSignedIn."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not user.is_authenticated or SESSION_KEY not in request.session:
        raise NotSignedIn
    return Sitting(user.pk, session_key, user.get_session_auth_hash(), None, frozenset())


def check_staff(sitting: Sitting) -> None:
    """Raises NotStaff for somebody who may not sit at the operator's pages."""
    if not may_sit(sitting):
        raise NotStaff


def may_sit(sitting: Sitting) -> bool:
    """Whether somebody may be there now."""
    ended, barred = ended_among({sitting})
    return not ended and not barred


def ended_among(sittings: Collection[Sitting]) -> tuple[set[Sitting], set[Sitting]]:
    """Those who are no longer signed in, and those who may no longer be where they are."""
    people = {one.user_id for one in sittings}
    keys = {one.session_key for one in sittings}
    living = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    sessions = set(living.values_list("session_key", flat=True))
    users = {
        user.pk: user for user in get_user_model().objects.filter(pk__in=people, is_active=True)
    }
    factors = Authenticator.objects.filter(user_id__in=people, type__in=SECOND_FACTORS)
    with_factor = set(factors.values_list("user_id", flat=True))
    standing = tenants.facade.standing_among(
        {(one.user_id, one.organization_id) for one in sittings if one.organization_id is not None}
    )
    ended = {
        one
        for one in sittings
        if one.session_key not in sessions
        or one.user_id not in users
        or users[one.user_id].get_session_auth_hash() != one.session_hash
    }

    def may(one: Sitting) -> bool:
        if one.organization_id is None:
            return users[one.user_id].is_staff and one.user_id in with_factor
        stands = standing.get((one.user_id, one.organization_id))
        return (
            stands is not None
            and one.needs <= stands.permissions
            and (one.user_id in with_factor or not stands.second_factor_required)
        )

    return ended, {one for one in sittings if one not in ended and not may(one)}
