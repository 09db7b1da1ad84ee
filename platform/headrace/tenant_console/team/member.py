"""`/console/<slug>/team/<id>`: one member and their role; and leaving, for oneself.

Called by the console's routes.
"""

from http import HTTPStatus
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

import tenants.facade
from headrace.console_kit.forms import ConfirmForm
from headrace.console_kit.pages import PageView
from headrace.sign_in.second_factors import second_factors_among
from headrace.tenant_console.team.forms import RoleForm
from headrace.tenant_console.team.members import TeamView
from tenants.contracts import LastOwner, Member, Permission


class MemberPage(TeamView):
    """Somebody of the organization."""

    title = "Member"
    needs = Permission.MEMBERS_READ
    writes = Permission.MEMBERS_WRITE
    is_sensitive = True
    template = "tenant_console/team/member.html"

    def get(self, request: HttpRequest, slug: str, user_id: UUID) -> HttpResponse:
        """Who they are, and what they may do."""
        member = tenants.facade.read_member(self.actor, user_id)
        return self._page(member, self._bound(member))

    def do_change(self, slug: str, user_id: UUID) -> HttpResponseBase:
        """Gives another role, from now on."""
        member = tenants.facade.read_member(self.actor, user_id)
        form = self._bound(member, self.request.POST)
        if form.is_valid():
            try:
                role = form.cleaned_data["role"]
                changed = tenants.facade.change_role(self.actor, user_id, role)
                return self.said(f"{changed.email} is {changed.role.value} now")
            except LastOwner as error:
                form.add_error("role", f"This cannot be done: {error}.")
        return self._page(member, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _bound(self, member: Member, data: object = None) -> RoleForm:
        return RoleForm(data, roles=self.roles_to_give, initial={"role": member.role.value})

    def _page(self, member: Member, form: RoleForm, status: int = HTTPStatus.OK) -> HttpResponse:
        may_touch = member.role in self.roles_to_give
        is_me = member.user_id == self.user_id
        return self.show(
            status=status,
            title=member.display_name or member.email,
            member=member,
            form=form,
            has_second_factor=bool(second_factors_among([member.user_id])),
            may_change=may_touch,
            may_remove=may_touch and not is_me,
            is_me=is_me,
            back=self.url("team"),
            leave_href=self.url("leave"),
        )


class LeavePage(PageView):
    """The end of one's own membership, whatever the role."""

    page = "team"
    title = "Leave"
    needs = writes = Permission.ORGANIZATION_READ
    template = "tenant_console/team/leave.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """What leaving means."""
        return self._form(ConfirmForm(name=slug))

    def do_leave(self, slug: str) -> HttpResponseBase:
        """Leaves, where the organization's slug was typed."""
        form = ConfirmForm(self.request.POST, name=slug)
        if form.is_valid():
            try:
                tenants.facade.remove_member(self.actor, self.user_id)
                name = self.membership.organization.display_name
                return self.said(f"You have left {name}", reverse("console:home"))
            except LastOwner as error:
                form.add_error(None, f"You cannot leave: {error}.")
        return self._form(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _form(self, form: ConfirmForm, status: int = HTTPStatus.OK) -> HttpResponse:
        name = self.membership.organization.display_name
        return self.show(status=status, title=f"Leave {name}", form=form, back=self.url("settings"))
