"""`/api/v1/me` and the founding of organizations: what a person may do before a tenant is known.

Both are for people with a session; a key belongs to one organization and founds none.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.founding import CURRENCIES, SLUG_CHARS_MAX, found
from headrace.management_api.authentication import SessionUser
from headrace.management_api.base import HouseView
from headrace.management_api.bodies import Body
from tenants.contracts import MemberOf, Role


class MyOrganization(serializers.Serializer[Any]):
    """One organization of a person."""

    id = serializers.UUIDField()
    object = serializers.ChoiceField(["organization"])
    slug = serializers.CharField()
    display_name = serializers.CharField()
    currency = serializers.CharField()
    role = serializers.ChoiceField([role.value for role in Role])
    status = serializers.CharField()
    permissions = serializers.ListField(child=serializers.CharField())


class Me(serializers.Serializer[Any]):
    """The person of the session."""

    id = serializers.UUIDField()
    object = serializers.ChoiceField(["user"])
    email = serializers.EmailField()
    display_name = serializers.CharField()
    organizations = MyOrganization(many=True)


class NewOrganization(Body):
    """What its founder decides; the currency is for good."""

    display_name = serializers.CharField(max_length=120)
    slug = serializers.RegexField(
        r"^[a-z0-9](-?[a-z0-9])*$", max_length=SLUG_CHARS_MAX, required=False
    )
    currency = serializers.ChoiceField(CURRENCIES, default="USD")


class PersonView(HouseView):
    """A view of the person of a session."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises ApiError 403 for a program."""
        super().initial(request, *args, **kwargs)
        if not isinstance(request.user, SessionUser):
            raise errors.insufficient_permissions("This is for people who are signed in.")

    @property
    def person(self) -> SessionUser:
        """Whoever is signed in."""
        user: object = self.request.user
        assert isinstance(user, SessionUser)
        return user


class MeView(PersonView):
    """Who I am, and where I belong."""

    @extend_schema(responses=Me)
    def get(self, request: Request) -> Response:
        """The person of the session with their organizations, by slug."""
        person = self.person
        return Response(
            {
                "id": person.user_id,
                "object": "user",
                "email": person.email,
                "display_name": person.display_name,
                "organizations": [
                    render_membership(one) for one in tenants.facade.memberships_of(person.user_id)
                ],
            }
        )


class OrganizationsView(PersonView):
    """Founding."""

    @extend_schema(request=NewOrganization, responses={201: MyOrganization})
    def post(self, request: Request) -> Response:
        """A new organization, with an account at zero; the caller owns it."""
        body = self.body(NewOrganization)
        made = found(
            self.person.user_id,
            body["display_name"],
            body["currency"],
            self.ip,
            self.request_id,
            body.get("slug"),
        )
        return Response(render_membership(made), status=201)


def render_membership(membership: MemberOf) -> dict[str, Any]:
    """`MyOrganization`."""
    organization = membership.organization
    return {
        "id": organization.organization_id,
        "object": "organization",
        "slug": organization.slug,
        "display_name": organization.display_name,
        "currency": organization.currency,
        "role": membership.role.value,
        "status": membership.status.value,
        "permissions": sorted(tenants.facade.ROLE_PERMISSIONS[membership.role]),
    }
