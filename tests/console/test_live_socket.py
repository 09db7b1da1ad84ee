"""`WS /console/<slug>/live`, through the web process's own ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis.asyncio
from allauth.mfa.models import Authenticator
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import batch_jobs.facade
import billing.facade
import tenants.facade
from headrace.asgi import Application
from headrace.console_kit.live.pages import LivePages
from headrace.console_kit.live.topics import Asked, Context, Topic
from headrace.console_kit.live.viewing import viewer_of
from headrace.gateway.announcing import Announcer
from headrace.gateway.database import in_database
from headrace.gateway.watched_sittings import WatchedSittings
from headrace.operator_console.live_topics import OPERATOR_TOPICS
from headrace.sign_in.sittings import ended_among
from headrace.tenant_console.live_topics import TOPICS
from tenants.contracts import Permission, Role
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import SummaryTenant, answer, make_summary_tenant, tend_now
from tests.console.people import new_person
from tests.headrace.door import Door, member_of, new_user

WAIT_S = 20
CHECK_S = 0.05
CLOSED = "websocket.close"
SENT = "websocket.send"


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose pages are looked at."""
    with selling(MODEL), override_settings(LIVE_S=0.05, LIVE_REFRESH_S=WAIT_S):
        tenant = make_summary_tenant("acme")
        billing.facade.open_account(tenant.owner.organization_id)
        yield tenant


def _balance(asked: Asked) -> Context:
    return {"content": billing.facade.balance(asked.place.organization_id).posted_pico}


def _job(asked: Asked) -> Context:
    job_id = UUID(asked.subject)
    found = batch_jobs.facade.find_job(asked.place.organization_id, job_id)
    return {"content": found.job.items_completed}


PLAIN = "kit/components/code.html"
PLAIN_TOPICS = {
    **TOPICS,
    "balance": Topic("balance", frozenset({Permission.LIMITS_READ}), PLAIN, _balance),
    "count": Topic(
        "count", frozenset({Permission.JOBS_READ}), PLAIN, _job, takes_subject=True, paced=True
    ),
    "secret": Topic("secret", frozenset({Permission.AUDIT_READ}), PLAIN, _balance),
}
"""Those of the pages, and some that show one number, whatever becomes of the pages."""


class House:
    """The web process's application, without an engine: live pages need none."""

    def __init__(self) -> None:
        self.application = Application()
        live = LivePages(self.application.feeds, PLAIN_TOPICS, OPERATOR_TOPICS)
        self.application.live = live
        self.redis = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        self.runtime = SimpleNamespace(draining=False, redis=self.redis, sittings=WatchedSittings())
        self.application.runtime = self.runtime  # type: ignore[assignment]  # all that is asked

    async def look(self, who: Door, slug: str, topics: str, **scope: Any) -> "Page":
        """A page whose socket was accepted."""
        make: Any = ApplicationCommunicator  # it has no types
        page = Page(make(self.application, {**_scope(who, slug, topics), **scope}))
        await page.talk.send_input({"type": "websocket.connect"})
        opened = await page.talk.receive_output(timeout=WAIT_S)
        assert opened["type"] == "websocket.accept"
        return page

    async def check(self) -> None:
        """What the runtime does every LIVE_CHECK_S."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.runtime.sittings.look()

    async def announce(self, tenant: SummaryTenant) -> None:
        """What a gateway's process says after a settle."""
        announcer = Announcer(self.redis, SimpleNamespace(hello=None))  # type: ignore[arg-type]
        announcer.moved(tenant.owner.organization_id)
        await announcer.announce()


class Page:
    """A browser's side of one socket."""

    def __init__(self, talk: Any) -> None:
        self.talk = talk

    async def shown(self) -> str:
        """The next message."""
        event = await self.talk.receive_output(timeout=WAIT_S)
        assert event["type"] == SENT, event
        text: str = event["text"]
        return text

    async def closed_with(self) -> int:
        """The code with which it is closed, after whatever is shown before."""
        while (event := await self.talk.receive_output(timeout=WAIT_S))["type"] != CLOSED:
            pass
        await self.leave()
        code: int = event["code"]
        return code

    async def leave(self) -> None:
        """The page is closed."""
        await self.talk.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.talk.wait(timeout=WAIT_S)


def _scope(who: Door, slug: str, topics: str) -> dict[str, Any]:
    path = f"/console/{slug}/live" if slug else "/operator/live"
    cookies = "; ".join(f"{name}={value}" for name, value in who.cookies.items())
    return {
        "type": "websocket",
        "path": path,
        "query_string": f"topics={topics}".encode(),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"origin", b"http://127.0.0.1"),
            (b"cookie", cookies.encode()),
        ],
        "subprotocols": [],
        "client": ("127.0.0.1", 1),
    }


def run(story: Callable[[House], Awaitable[Any]]) -> Any:
    async def wrapped() -> Any:
        house = House()
        checking = asyncio.ensure_future(house.check())
        try:
            return await story(house)
        finally:
            checking.cancel()
            await house.redis.aclose()

    return asyncio.run(wrapped())


def refusal(who: Door, slug: str, topics: str, **scope: Any) -> int:
    """With what a fresh house closes such a socket."""

    async def story(house: House) -> int:
        return await (await house.look(who, slug, topics, **scope)).closed_with()

    code = run(story)
    assert isinstance(code, int)
    return code


def slug_of(tenant: SummaryTenant) -> str:
    actor = tenants.facade.operator_of(tenant.owner.organization_id)
    return tenants.facade.read_organization(actor).slug


def viewer(tenant: SummaryTenant, role: Role = Role.VIEWER) -> Door:
    return member_of(tenant.owner.organization_id, role)


def test_what_moved_is_shown_with_the_time(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)
    organization_id = acme.owner.organization_id

    async def story(house: House) -> tuple[str, str]:
        page = await house.look(who, slug, "balance")
        first = await page.shown()
        await in_database(billing.facade.grant_credit, organization_id, 7 * 10**12, "more")
        await house.announce(acme)
        second = await page.shown()
        await page.leave()
        assert len(house.application.feeds) == 0
        return first, second

    before = billing.facade.balance(organization_id).posted_pico
    first, second = run(story)

    assert f">{before}<" in first
    assert f">{before + 7 * 10**12}<" in second
    assert '<time id="live-time" datetime="' in second


def test_a_job_is_shown_to_its_end(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    job_id = str(_uuid(summary_id))
    who, slug = viewer(acme), slug_of(acme)

    async def story(house: House) -> list[str]:
        page = await house.look(who, slug, f"count:{job_id}")
        seen = [await page.shown()]
        await in_database(answer, summary_id, "a")
        seen.append(await page.shown())
        await in_database(tend_now)
        await page.leave()
        return seen

    first, second = run(story)

    assert ">0<" in first
    assert ">1<" in second


def test_a_flood_costs_a_viewer_one_message_in_a_while_and_no_query(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)
    organization_id = acme.owner.organization_id

    async def story(house: House) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        pages = [await house.look(who, slug, "balance") for _ in range(8)]
        for page in pages:
            await page.shown()
        assert len(house.application.feeds) == 1
        began, messages, last = loop.time(), 0, ""
        for turn in range(40):
            await in_database(billing.facade.grant_credit, organization_id, 10**12, f"g{turn}")
            await house.announce(acme)
        balance = await in_database(billing.facade.balance, organization_id)
        while f">{balance.posted_pico}<" not in last:
            last = await pages[0].shown()
            messages += 1
        lasted_s = loop.time() - began
        for page in pages:
            await page.leave()
        return messages, lasted_s

    with override_settings(LIVE_S=0.2):
        messages, lasted_s = run(story)

    assert messages <= lasted_s / 0.2 + 1


def test_a_job_is_read_once_however_its_id_is_spelled(acme: SummaryTenant) -> None:
    job_id = _uuid(acme.running("a"))
    who, slug = viewer(acme), slug_of(acme)
    spellings = [str(job_id), str(job_id).upper(), job_id.hex, f"urn:uuid:{job_id}"]

    async def story(house: House) -> int:
        page = await house.look(who, slug, ",".join(f"count:{one}" for one in spellings))
        await page.shown()
        feeds = len(house.application.feeds)
        await page.leave()
        return feeds

    assert run(story) == 1


def test_nobody_is_shown_what_is_not_theirs(acme: SummaryTenant) -> None:
    globex = make_summary_tenant("globex")
    theirs = _uuid(globex.running("b"))
    who, slug = viewer(acme, Role.OWNER), slug_of(acme)

    assert refusal(who, slug_of(globex), "usage") == 4404
    assert refusal(who, "nobody", "usage") == 4404
    assert refusal(who, slug, f"job:{theirs}") == 4404
    assert refusal(who, slug, f"job:{uuid4()}") == 4404
    assert refusal(who, slug, "job:nonsense") == 4404
    assert refusal(who, slug, "usage,gossip") == 4400
    assert refusal(who, slug, "fleet") == 4400
    assert refusal(who, slug, "") == 4400
    assert refusal(who, slug, ",".join(f"job:{uuid4()}" for _ in range(33))) == 4400


def test_nobody_is_shown_anything_without_a_session(acme: SummaryTenant) -> None:
    slug = slug_of(acme)
    forged = Door()
    forged.cookies.set(settings.SESSION_COOKIE_NAME, "a" * 32)

    assert refusal(Door(), slug, "usage") == 4401
    assert refusal(forged, slug, "usage") == 4401


@override_settings(ADDRESS_READS_PER_MINUTE_MAX=2)
def test_an_address_that_tries_too_many_sessions_is_not_looked_up_for(acme: SummaryTenant) -> None:
    who, slug, client = viewer(acme), slug_of(acme), (f"198.51.100.{uuid4().int % 256}", 1)
    guessed = Door()
    for _ in range(2):
        guessed.cookies.set(settings.SESSION_COOKIE_NAME, uuid4().hex)
        assert refusal(guessed, slug, "usage", client=client) == 4401

    assert refusal(guessed, slug, "usage", client=client) == 1013
    assert refusal(who, slug, "usage", client=client) == 1013


def test_a_role_is_shown_what_its_permissions_are(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)

    assert refusal(who, slug, "usage,secret") == 4403


def test_another_origin_is_refused(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)
    scope = _scope(who, slug, "usage")
    headers = [
        (name, b"https://evil.example" if name == b"origin" else value)
        for name, value in scope["headers"]
    ]

    assert refusal(who, slug, "usage", headers=headers) == 4403


def test_who_has_not_the_second_factor_that_is_demanded_sees_nothing(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)
    _demand_second_factor(acme)

    assert refusal(who, slug, "usage") == 4403


def test_the_operators_pages_are_for_staff_with_a_second_factor(acme: SummaryTenant) -> None:
    assert refusal(viewer(acme, Role.OWNER), "", "fleet") == 4403
    assert refusal(Door(), "", "fleet") == 4401
    assert refusal(_staff(with_factor=False), "", "fleet") == 4403
    assert refusal(_staff(with_factor=True), "", "usage") == 4400

    async def story(house: House) -> str:
        page = await house.look(_operator, "", "fleet")
        shown = await page.shown()
        await page.leave()
        return shown

    _operator = _staff(with_factor=True)

    assert '<time id="live-time"' in run(story)


def _ends(acme: SummaryTenant, who: Door, act: Callable[[], object]) -> int:
    """With what a page closes on which somebody looks while this happens."""
    slug = slug_of(acme)

    async def story(house: House) -> int:
        page = await house.look(who, slug, "usage")
        await page.shown()
        await in_database(act)
        return await page.closed_with()

    code = run(story)
    assert isinstance(code, int)
    return code


def test_a_session_that_ends_closes_its_pages(acme: SummaryTenant) -> None:
    who = viewer(acme)

    assert _ends(acme, who, Session.objects.filter(session_key=who.session_key).delete) == 4401


def test_a_new_password_closes_the_pages_of_other_sessions(acme: SummaryTenant) -> None:
    user_id = new_user()
    tenants.facade.add_member(acme.owner.organization_id, user_id, Role.VIEWER)
    who = Door().sign_in(user_id)

    def change() -> None:
        user = get_user_model().objects.get(pk=user_id)
        user.set_password("another one of theirs")
        user.save(update_fields=["password"])

    assert _ends(acme, who, change) == 4401


def test_a_member_who_is_removed_sees_nothing_more(acme: SummaryTenant) -> None:
    organization_id = acme.owner.organization_id
    user_id = new_user()
    tenants.facade.add_member(organization_id, user_id, Role.VIEWER)
    who = Door().sign_in(user_id)

    def remove() -> None:
        tenants.facade.remove_member(tenants.facade.operator_of(organization_id), user_id)

    assert _ends(acme, who, remove) == 4403


def test_a_second_factor_that_is_demanded_meanwhile_closes(acme: SummaryTenant) -> None:
    assert _ends(acme, viewer(acme), lambda: _demand_second_factor(acme)) == 4403


def test_whether_all_still_may_is_asked_in_a_handful_of_queries(acme: SummaryTenant) -> None:
    slug = slug_of(acme)
    needs = frozenset({Permission.USAGE_READ})
    looking = {viewer_of(viewer(acme).session_key, slug, needs).sitting for _ in range(5)}

    with CaptureQueriesContext(connection) as asked:
        assert ended_among(looking) == (set(), set())

    assert len(asked) <= 4


@override_settings(LIVE_VIEWERS_PER_PERSON_MAX=2)
def test_a_person_has_so_many_live_pages(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)

    async def story(house: House) -> int:
        first, second = [await house.look(who, slug, "usage") for _ in range(2)]
        refused = await (await house.look(who, slug, "usage")).closed_with()
        await first.leave()
        third = await house.look(who, slug, "usage")
        await third.shown()
        for page in (second, third):
            await page.leave()
        return refused

    assert run(story) == 1013


def test_a_house_that_shuts_down_lets_pages_come_back(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)

    async def story(house: House) -> int:
        page = await house.look(who, slug, "usage")
        await page.shown()
        house.runtime.draining = True
        return await page.closed_with()

    assert run(story) == 1012


@override_settings(LIVE_MESSAGE_BYTES_MAX=10)
def test_a_part_that_is_too_large_is_left_out(acme: SummaryTenant) -> None:
    who, slug = viewer(acme), slug_of(acme)

    async def story(house: House) -> str:
        page = await house.look(who, slug, "usage")
        shown = await page.shown()
        await page.leave()
        return shown

    assert run(story).startswith('<time id="live-time"')


def _uuid(summary_id: str) -> UUID:
    return UUID(summary_id.removeprefix("summary_"))


def _demand_second_factor(tenant: SummaryTenant) -> None:
    actor = tenants.facade.operator_of(tenant.owner.organization_id)
    tenants.facade.update_organization(
        replace(actor, has_second_factor=True), second_factor_required=True
    )


def _staff(*, with_factor: bool) -> Door:
    person = new_person("operator", is_staff=True)
    if not with_factor:
        Authenticator.objects.filter(user_id=person.user_id).delete()
    return Door().sign_in(person.user_id)
