"""Sign-ins and what people change about them, in the audit log of each organization of theirs.

Listens to the signals of the sign-in library; connected by `headrace.wiring`. An entry is written
after the change it tells of; without it the request fails, and the person tries again. Never
writes an address or a name: entries hold ids.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from allauth.account import signals as account
from allauth.account.models import EmailAddress
from allauth.mfa import signals as mfa
from django.contrib.auth.signals import user_logged_out, user_login_failed
from django.db import transaction
from django.dispatch import Signal
from django.http import HttpRequest

import tenants.facade
from headrace.request_origin import address_of, request_id_of
from tenants.contracts import Actor, ActorKind

_OF_THE_PERSON: tuple[tuple[Signal, str], ...] = (
    (account.user_logged_in, "user.signed_in"),
    (user_logged_out, "user.signed_out"),
    (account.password_set, "user.password_changed"),
    (account.password_changed, "user.password_changed"),
    (account.password_reset, "user.password_changed"),
    (account.email_changed, "user.email_changed"),
    (mfa.authenticator_added, "user.second_factor_added"),
    (mfa.authenticator_removed, "user.second_factor_removed"),
    (mfa.authenticator_reset, "user.second_factor_reset"),
)


def connect() -> None:
    """From now on, sign-in is audited."""
    for signal, action in _OF_THE_PERSON:
        signal.connect(_recorder(action), dispatch_uid=f"audit {action} {id(signal)}", weak=False)
    user_login_failed.connect(_login_failed, dispatch_uid="audit user.sign_in_failed")
    mfa.authentication_failed.connect(
        _second_factor_failed, dispatch_uid="audit user.second_factor_failed"
    )


def _recorder(action: str) -> Callable[..., None]:
    def record(*, request: HttpRequest, user: Any, **details: Any) -> None:
        if user is None:  # a session that ended by itself
            return
        kind = getattr(details.get("authenticator"), "type", None)
        _record(request, ActorKind.USER, user.pk, action, {"kind": str(kind)} if kind else {})

    return record


def _login_failed(
    *, request: HttpRequest | None = None, credentials: dict[str, Any], **_: Any
) -> None:
    """Somebody tried; whether they are the person is just what is not known."""
    if request is None:
        return
    address = str(credentials.get("email") or credentials.get("username") or "")
    owner = EmailAddress.objects.filter(email__iexact=address, verified=True).first()
    if owner is not None:
        _record(request, ActorKind.SYSTEM, owner.user_id, "user.sign_in_failed", {})


def _second_factor_failed(*, request: HttpRequest, user: Any, **_: Any) -> None:
    _record(request, ActorKind.SYSTEM, user.pk, "user.second_factor_failed", {})


def _record(
    request: HttpRequest, kind: ActorKind, user_id: UUID, action: str, details: dict[str, str]
) -> None:
    # A scope is a transaction of its own: it waits for the end of one that is open.
    transaction.on_commit(
        partial(
            _record_everywhere,
            kind,
            user_id,
            address_of(request),
            request_id_of(request),
            action,
            details,
        )
    )


def _record_everywhere(
    kind: ActorKind,
    user_id: UUID,
    ip: str,
    request_id: UUID | None,
    action: str,
    details: dict[str, str],
) -> None:
    actor_id = user_id if kind is ActorKind.USER else None
    for one in tenants.facade.memberships_of(user_id):
        organization_id = one.organization.organization_id
        actor = Actor(kind, actor_id, organization_id, frozenset(), ip, request_id)
        with tenants.facade.tenant_scope(organization_id):
            tenants.facade.record_audit(actor, action, "user", user_id, details)
