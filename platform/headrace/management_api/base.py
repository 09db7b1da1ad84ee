"""What every view of the management API does before its own work.

It finds out who acts in which organization, asks the permission its table names, and answers
errors in the house's shape. A view never looks at roles, and never reads an organization's id
from anywhere but `self.actor`.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

import tenants.facade
from batch_jobs.contracts import Owner
from headrace import errors
from headrace.gateway.admission.auth import check_asked_tenant, require_scope
from headrace.management_api.authentication import (
    ApiKeyAuthentication,
    ApiKeyUser,
    SessionAuthentication,
    SessionUser,
)
from headrace.management_api.bodies import Body, parse_body
from headrace.request_origin import address_of, request_id_of
from headrace.request_rates import count_actor
from tenants.contracts import (
    Actor,
    KeyIdentity,
    KeyKind,
    KeyScope,
    OrganizationNotFound,
    Permission,
)


class HouseView(APIView):
    """A view of a session or a key. Raises what `errors` can render, and nothing else."""

    authentication_classes = [SessionAuthentication, ApiKeyAuthentication]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before the method's handler; raises ApiError 429 for one too many of this caller."""
        super().initial(request, *args, **kwargs)
        user: object = request.user
        if isinstance(user, SessionUser):
            count_actor(user.user_id, request.method or "")
        elif isinstance(user, ApiKeyUser):
            count_actor(user.identity.key_id, request.method or "")

    def body(self, body_class: type[Body], *, partial: bool = False) -> dict[str, Any]:
        """The request's validated body; raises ApiError 400 with `param`."""
        return parse_body(body_class, self.request.data, partial=partial)

    @property
    def ip(self) -> str:
        """The caller's address."""
        return address_of(self.request._request)  # noqa: SLF001 - DRF gives no other way

    @property
    def request_id(self) -> UUID | None:
        """What the answer's `x-request-id` will say."""
        return request_id_of(self.request._request)  # noqa: SLF001

    def require_recent_sign_in(self) -> None:
        """Raises ApiError 403 for a session whose person has not proved who they are lately.

        A program has nothing to prove again: its key is sent with every request.
        """
        user: object = self.request.user
        if not isinstance(user, SessionUser):
            return
        if time.time() - user.signed_in_at > settings.ACCOUNT_REAUTHENTICATION_TIMEOUT:
            raise errors.sign_in_again()


class ActingView(HouseView):
    """A view of an organization: `self.actor` has the permission that the method asks for."""

    permissions: ClassVar[Mapping[str, Permission]]
    """By method, for each that the view answers."""
    sensitive: ClassVar[frozenset[str]] = frozenset()
    """Methods for which a session must have been signed in lately."""
    actor: Actor

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before the method's handler: who, where, whether."""
        super().initial(request, *args, **kwargs)
        self.actor = self.find_actor(request)
        method = request.method or ""
        if hasattr(self, method.lower()) and method != "OPTIONS":
            self.actor.require(self.permissions["GET" if method == "HEAD" else method])
            if method in self.sensitive:
                self.require_recent_sign_in()

    def find_actor(self, request: Request) -> Actor:
        """Who acts; raises ApiError 403 or 404."""
        raise NotImplementedError

    def actor_of_key(self, identity: KeyIdentity) -> Actor:
        """An admin key's actor; raises ApiError 403 for a project's key."""
        if identity.kind is not KeyKind.ADMIN:
            raise errors.key_not_for_management()
        return tenants.facade.actor_for_key(identity, self.ip, self.request_id)


class TenantView(ActingView):
    """A view under `/api/v1/organizations/<uuid:organization_id>/`.

    An organization that is unknown, or not the caller's, is 404 alike.
    """

    def find_actor(self, request: Request) -> Actor:
        """A member by session, or an admin key of this organization."""
        organization_id: UUID = self.kwargs["organization_id"]
        user: object = request.user
        if isinstance(user, ApiKeyUser):
            actor = self.actor_of_key(user.identity)
            if user.identity.organization_id != organization_id:
                raise OrganizationNotFound
            return actor
        assert isinstance(user, SessionUser)
        return tenants.facade.actor_for_user(
            user.user_id,
            organization_id,
            self.ip,
            self.request_id,
            has_second_factor=user.has_second_factor,
        )


class OrganizationKeyView(ActingView):
    """A view under OpenAI's `/v1/organization/`: the admin key says which organization."""

    authentication_classes = [ApiKeyAuthentication]

    def find_actor(self, request: Request) -> Actor:
        """The admin key's actor."""
        user: object = request.user
        assert isinstance(user, ApiKeyUser)
        return self.actor_of_key(user.identity)


class OneAnswerNegotiation(DefaultContentNegotiation):
    """Answers in the one form there is, whatever the client would accept: stock clients ask for
    `application/binary` and read errors as JSON all the same."""

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        """The view's first."""
        first = next(iter(renderers))
        return first, first.media_type or ""


class ProjectKeyView(HouseView):
    """A view of what belongs to a project, by one of its keys that has the scope `needs`."""

    authentication_classes = [ApiKeyAuthentication]
    content_negotiation_class = OneAnswerNegotiation
    needs: ClassVar[KeyScope]
    owner: Owner

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before the method's handler: whose project; raises ApiError 401, 403 or 429."""
        super().initial(request, *args, **kwargs)
        user: object = request.user
        assert isinstance(user, ApiKeyUser)
        identity = user.identity
        check_asked_tenant(
            identity,
            request.headers.get("openai-organization"),
            request.headers.get("openai-project"),
        )
        require_scope(identity, self.needs)
        self.owner = Owner(identity.organization_id, identity.project_id, identity.key_id)
