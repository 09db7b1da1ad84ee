"""`/console/<slug>/search?q=`: pages, projects, keys, people, requests and jobs by name or id.

Answers the list under the search box, for htmx. Shows nobody what their pages would not. Called by
the console's routes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from django.http import HttpRequest, HttpResponse

import tenants.facade
from headrace.console_kit.navigation import seen_by
from headrace.console_kit.pages import PageView
from headrace.gateway.request_ids import parse_request_id, public_request_id
from tenants.contracts import KeyKind, Permission

FOUND_MAX = 12
LOOKED_AT_MAX = 1_000
"""Keys, projects and people, the newest first: among more, theirs are the pages to look on."""
TEXT_CHARS_MAX = 128
JOB_PREFIXES = ("batch_", "summary_")


@dataclass(frozen=True, slots=True)
class Found:
    """Something that answers to the text, and where it is."""

    icon: str
    text: str
    kind: str
    href: str


class SearchPage(PageView):
    """What is called like that."""

    page = "search"
    title = "Search"
    needs = Permission.ORGANIZATION_READ
    template = "tenant_console/search.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """At most FOUND_MAX; nothing for no text."""
        text = request.GET.get("q", "").strip()[:TEXT_CHARS_MAX]
        found = list(islice(self._found(text), FOUND_MAX)) if text else []
        return self.show(found=found, text=text)

    def _found(self, text: str) -> Iterator[Found]:
        yield from self._by_id(text)
        wanted = text.casefold()
        for entry in seen_by(self.actor.permissions):
            if wanted in entry.title.casefold():
                yield Found(entry.icon, entry.title, "page", self.url(entry.route))
        for project in self.projects:
            if wanted in project.name.casefold():
                href = self.url("project", project.project_id)
                yield Found("folder", project.name, "project", href)
        if self.may(Permission.KEYS_READ):
            yield from self._keys(wanted)
        if self.may(Permission.MEMBERS_READ):
            for member in tenants.facade.list_members(self.actor, rows_max=LOOKED_AT_MAX):
                if wanted in member.email.casefold() or wanted in member.display_name.casefold():
                    href = self.url("team-member", member.user_id)
                    yield Found("user", member.display_name or member.email, member.email, href)

    def _keys(self, wanted: str) -> Iterator[Found]:
        keys = tenants.facade.list_keys(self.actor, KeyKind.PROJECT, rows_max=LOOKED_AT_MAX)
        for key in keys:
            if wanted in key.settings.name.casefold() or wanted.startswith(key.prefix.casefold()):
                href = self.url("key", key.key_id)
                yield Found("key", key.settings.name, f"key …{key.last4}", href)

    def _by_id(self, text: str) -> Iterator[Found]:
        """A pasted id leads there; whether it is this organization's the page says."""
        prefix = next((one for one in JOB_PREFIXES if text.startswith(one)), "")
        if prefix and self.may(Permission.JOBS_READ):
            job_id = _uuid(text.removeprefix(prefix))
            if job_id is not None:
                yield Found("stack-2", text, prefix.strip("_"), self.url("job", job_id))
            return
        request_id = parse_request_id(text)
        if request_id is not None and self.may(Permission.REQUESTS_READ):
            public_id = public_request_id(request_id)
            yield Found("receipt", public_id, "request", self.url("receipt", public_id))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
