"""OpenAI's own client administers an organization, and validates strictly what it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import httpx
import openai
import pytest

from headrace.asgi import rest
from tenants import facade
from tenants.contracts import KeyKind, KeyRejected, Permission, Role
from tests.headrace.door import HOST, admin_key, new_user
from tests.tenants.cast import Tenant, make_tenant

Answer = TypeVar("Answer")
Story = Callable[[openai.AsyncOpenAI], Awaitable[Answer]]


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization that is administered."""
    return make_tenant("acme")


def told(secret: str, story: Story[Answer]) -> Answer:
    """What a story of the stock client comes to, by way of the web process's REST half."""

    async def tell() -> Answer:
        transport = httpx.ASGITransport(app=cast("Any", rest))
        async with httpx.AsyncClient(transport=transport) as http:
            client = openai.AsyncOpenAI(
                api_key="unused",
                admin_api_key=secret,
                base_url=f"{HOST}/v1",
                http_client=http,
                max_retries=0,
                _strict_response_validation=True,
            )
            return await story(client)

    return asyncio.run(tell())


def test_projects_are_made_renamed_listed_and_archived(acme: Tenant) -> None:
    async def story(client: openai.AsyncOpenAI) -> list[str | None]:
        projects = client.admin.organization.projects
        made = await projects.create(name="lab")
        await projects.update(made.id, name="laboratory")
        assert (await projects.retrieve(made.id)).name == "laboratory"
        listed = [one.name async for one in projects.list(limit=1)]
        assert (await projects.archive(made.id)).status == "archived"
        assert made.id not in [one.id async for one in projects.list()]
        assert made.id in [one.id async for one in projects.list(include_archived=True)]
        return listed

    assert told(admin_key(acme.organization_id), story) == ["laboratory", "demo"]


def test_a_service_account_comes_with_a_key_that_goes_with_it(acme: Tenant) -> None:
    project = str(acme.project_id)

    async def story(client: openai.AsyncOpenAI) -> str:
        projects = client.admin.organization.projects
        made = await projects.service_accounts.create(project, name="ci")
        assert made.api_key is not None
        secret = made.api_key.value
        identity = await asyncio.to_thread(facade.authenticate, secret)
        assert str(identity.key_id) == made.api_key.id
        keys = [one async for one in projects.api_keys.list(project)]
        [of_account] = [one for one in keys if one.id == made.api_key.id]
        assert of_account.owner.type == "service_account"
        assert of_account.redacted_value.endswith(secret[-4:])
        assert secret not in str(keys)
        await projects.service_accounts.delete(made.id, project_id=project)
        assert [one.id async for one in projects.service_accounts.list(project)] == []
        return secret

    secret = told(admin_key(acme.organization_id), story)
    with pytest.raises(KeyRejected):
        facade.authenticate(secret)


def test_a_key_of_a_project_is_read_and_revoked(acme: Tenant) -> None:
    async def story(client: openai.AsyncOpenAI) -> None:
        keys = client.admin.organization.projects.api_keys
        found = await keys.retrieve(str(acme.key_id), project_id=str(acme.project_id))
        assert found.name == "test"
        gone = await keys.delete(str(acme.key_id), project_id=str(acme.project_id))
        assert gone.deleted
        with pytest.raises(openai.NotFoundError):
            await keys.retrieve(str(acme.key_id), project_id=str(acme.project_id))

    told(admin_key(acme.organization_id), story)
    with pytest.raises(KeyRejected):
        facade.authenticate(acme.secret)


def test_people_are_invited_and_their_roles_changed(acme: Tenant) -> None:
    user_id = new_user()
    facade.add_member(acme.organization_id, user_id, Role.OWNER)
    viewer = new_user()
    facade.add_member(acme.organization_id, viewer, Role.VIEWER)

    async def story(client: openai.AsyncOpenAI) -> None:
        organization = client.admin.organization
        invite = await organization.invites.create(email="ada@example.com", role="reader")
        assert (invite.status, invite.role) == ("pending", "reader")
        assert [one.id async for one in organization.invites.list()] == [invite.id]
        await organization.invites.delete(invite.id)
        assert (await organization.invites.retrieve(invite.id)).status == "expired"
        changed = await organization.users.update(str(viewer), role="owner")
        assert changed.role == "owner"
        await organization.users.delete(str(viewer))
        assert [one.id async for one in organization.users.list()] == [str(user_id)]

    told(admin_key(acme.organization_id), story)


def test_an_admin_key_makes_another_of_no_more_rights(acme: Tenant) -> None:
    secret = admin_key(acme.organization_id, Permission.KEYS_READ, Permission.KEYS_WRITE)

    async def story(client: openai.AsyncOpenAI) -> None:
        keys = client.admin.organization.admin_api_keys
        with pytest.raises(openai.PermissionDeniedError):
            await keys.create(name="more", extra_body={"permissions": ["billing.write"]})

    told(secret, story)
    mighty = admin_key(acme.organization_id)

    async def second(client: openai.AsyncOpenAI) -> str:
        keys = client.admin.organization.admin_api_keys
        made = await keys.create(name="terraform", extra_body={"permissions": ["projects.read"]})
        assert (await keys.retrieve(made.id)).redacted_value.endswith(made.value[-4:])
        return made.value

    identity = facade.authenticate(told(mighty, second))
    assert identity.permissions == {Permission.PROJECTS_READ}
    assert identity.kind is KeyKind.ADMIN


def test_the_audit_log_names_what_was_done_in_openais_words(acme: Tenant) -> None:
    secret = admin_key(acme.organization_id)

    async def story(client: openai.AsyncOpenAI) -> None:
        organization = client.admin.organization
        project = await organization.projects.create(name="lab")
        await organization.projects.update(project.id, name="laboratory")
        await organization.invites.create(email="ada@example.com", role="reader")
        # Beyond these three, acts that OpenAI has no word for keep ours.
        logs = (await organization.audit_logs.list(limit=3)).data
        assert [one.type for one in logs] == ["invite.sent", "project.updated", "project.created"]
        assert logs[0].actor is not None and logs[0].actor.type == "api_key"
        some = [
            one.type
            async for one in organization.audit_logs.list(
                event_types=["project.updated"], resource_ids=[project.id]
            )
        ]
        assert some == ["project.updated"]
        moment = logs[0].effective_at
        none = [one async for one in organization.audit_logs.list(effective_at={"lt": moment - 60})]
        assert none == []

    told(secret, story)


def test_a_projects_key_administers_nothing(acme: Tenant) -> None:
    async def story(client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.PermissionDeniedError):
            await client.admin.organization.projects.list()

    told(acme.secret, story)
