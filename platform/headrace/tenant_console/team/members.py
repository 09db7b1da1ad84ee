"""`/console/<slug>/team`: who belongs here, who is invited, and the end of either.

Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.sign_in.second_factors import second_factors_among
from tenants.contracts import Invitation, LastOwner, Member, Permission, Role

MEMBERS_SHOWN_MAX = 100
INVITATIONS_SHOWN_MAX = 100


class TeamView(PageView):
    """A page about members."""

    page = "team"

    @property
    def roles_to_give(self) -> list[Role]:
        """Those that the viewer may give and take."""
        given = tenants.facade.roles_given_by(self.actor.permissions)
        return [role for role in Role if role in given]


class TeamPage(TeamView):
    """Members and open invitations."""

    title = "Team"
    needs = Permission.MEMBERS_READ
    writes = Permission.MEMBERS_WRITE
    template = "tenant_console/team/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?after=` of members."""
        members = tenants.facade.list_members(
            self.actor, rows_max=MEMBERS_SHOWN_MAX + 1, after=self.asked_id("after")
        )
        shown = members[:MEMBERS_SHOWN_MAX]
        more = len(members) > MEMBERS_SHOWN_MAX
        invited = tenants.facade.list_invitations(
            self.actor, only_open=True, rows_max=INVITATIONS_SHOWN_MAX
        )
        return self.show(
            members=self._members(shown, more=more),
            invitations=self._invitations(invited),
            may_write=self.may(Permission.MEMBERS_WRITE),
            invite_href=self.url("team-invite"),
            leave_href=self.url("leave"),
        )

    def do_remove(self, slug: str) -> HttpResponseBase:
        """Ends a membership."""
        member = tenants.facade.read_member(self.actor, self.posted_id("user_id"))
        try:
            tenants.facade.remove_member(self.actor, member.user_id)
        except LastOwner as error:
            return self.refused(f"{member.email} stays: {error}.")
        return self.said(f"{member.email} is no member any more", self.url("team"))

    def do_withdraw(self, slug: str) -> HttpResponseBase:
        """Takes an invitation back."""
        invitation = tenants.facade.read_invitation(self.actor, self.posted_id("invitation_id"))
        tenants.facade.revoke_invitation(self.actor, invitation.invitation_id)
        return self.said(f"The invitation of {invitation.email} is withdrawn")

    def _members(self, members: list[Member], *, more: bool) -> Table:
        protected = second_factors_among([one.user_id for one in members])
        columns = [
            Column("Member"),
            Column("Role"),
            Column("Second factor", hides=True),
            Column("Since", hides=True),
        ]
        rows = [
            Row(
                [
                    self._who(one),
                    badge(one.role.value, "blue" if one.role is Role.OWNER else "gray"),
                    badge("on", "green") if one.user_id in protected else badge("off", "yellow"),
                    formats.moment(one.added_at, self.zone),
                ],
                self.url("team-member", one.user_id),
            )
            for one in members
        ]
        next_href = self.url("team", after=members[-1].user_id) if more else ""
        return Table("Members", columns, rows, next_href=next_href)

    def _who(self, member: Member) -> SafeString:
        me = " (you)" if member.user_id == self.user_id else ""
        if not member.display_name:
            return format_html("{}{}", member.email, me)
        return format_html(
            '{}{}<span class="cell-note">{}</span>', member.display_name, me, member.email
        )

    def _invitations(self, invitations: list[Invitation]) -> Table:
        may_write = self.may(Permission.MEMBERS_WRITE)
        columns = [
            Column("Address"),
            Column("Role", hides=True),
            Column("Sent", hides=True),
            Column("Open until", hides=True),
        ]
        if may_write:
            columns.append(Column("Actions", is_hidden_title=True, is_number=True))
        rows = []
        for one in invitations:
            is_late = one.expires_at <= self.now
            until = formats.moment(one.expires_at, self.zone)
            cells: list[object] = [
                one.email or "",
                badge(one.role.value),
                formats.age(one.created_at, self.zone, self.now),
                badge("expired", "yellow") if is_late else until,
            ]
            if may_write:
                cells.append(self._actions(one))
            rows.append(Row(cells))
        return Table("Invitations", columns, rows)

    def _actions(self, invitation: Invitation) -> SafeString:
        context = {
            "invitation": invitation,
            "again_href": self.url("team-invite", invitation=invitation.invitation_id),
            "may_again": invitation.role in self.roles_to_give,
        }
        template = "tenant_console/team/invitation_actions.html"
        return SafeString(render_to_string(template, context, self.request))
