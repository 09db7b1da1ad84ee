"""`/console/<slug>/team/invite`: an invitation by mail, new or once more.

The token is in the mail to the invited address and on no page. Called by the console's routes.
"""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import tenants.facade
from headrace.tenant_console.team.forms import InvitationForm
from headrace.tenant_console.team.members import TeamView
from tenants.contracts import InvalidValue, Permission, TenantConflict


class InvitePage(TeamView):
    """Whom to invite."""

    title = "Invite somebody"
    needs = writes = Permission.MEMBERS_WRITE
    is_sensitive = True
    template = "tenant_console/team/invite.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The form, filled in where `?invitation=` is to be sent once more."""
        initial: dict[str, object] = {"role": "developer"}
        again = self.asked_id("invitation")
        if again is not None:
            invitation = tenants.facade.read_invitation(self.actor, again)
            initial = {"email": invitation.email, "role": invitation.role.value}
        if not self.signed_in_lately():
            return self.prove_again()
        initial.setdefault("expires_after_days", 7)
        return self._form(InvitationForm(roles=self.roles_to_give, initial=initial))

    def do_invite(self, slug: str) -> HttpResponseBase:
        """Sends it; an earlier one of the address does not work any more."""
        form = InvitationForm(self.request.POST, roles=self.roles_to_give)
        if form.is_valid():
            asked = form.cleaned_data
            try:
                tenants.facade.invite(
                    self.actor, asked["email"], asked["role"], asked["expires_after_days"]
                )
                return self.said(f"A mail to {asked['email']} is on its way", self.url("team"))
            except InvalidValue as error:
                form.refuse(error)
            except TenantConflict as error:
                form.add_error("email", f"This cannot be done: {error}.")
        return self._form(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _form(self, form: InvitationForm, status: int = HTTPStatus.OK) -> HttpResponse:
        is_again = "invitation" in self.request.GET
        return self.show(status=status, form=form, is_again=is_again, back=self.url("team"))
