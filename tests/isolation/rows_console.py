"""The console's rows of the isolation matrix: every page, and whose things its address can name.

    "<slug:slug>/keys/<uuid:key_id>": Page(key, forms={"revoke": Form({"confirm": "x"})})

Under `console/`. `own` makes a fresh object on a side and returns the address's arguments beyond
`slug`; `deleted` and `sibling` as in routes.py. Each `do_<verb>` of a page has a form here, with
fields that do it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import batch_jobs.facade
from batch_jobs.models import BulkJob
from tests.isolation.matrix import Arguments, Make, nothing
from tests.isolation.rows_bulk import batch, bulk_model, made_summary, owner_of, uploaded
from tests.isolation.rows_events import (
    deleted_delivery,
    deleted_webhook,
    delivery,
    export,
    exports_written,
    webhook,
)
from tests.isolation.rows_limits import lifted_spend_alert, spend_alert_of_project
from tests.isolation.rows_money import document, waiting_top_up
from tests.isolation.rows_people import (
    former_member,
    invitation,
    key,
    member,
    new_address,
    project,
    service_account,
)
from tests.isolation.rows_usage import request
from tests.isolation.sides import Side

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Form:
    """What a form sends, and the status that somebody who may gets: 303 after a write."""

    fields: Fields | Callable[[Side, Arguments], Fields] = field(default_factory=dict)
    status: int = 303


@dataclass(frozen=True)
class Page:
    """One page of an organization."""

    own: Make = nothing
    deleted: Make | None = None
    sibling: Make | None = None
    forms: Mapping[str, Form] = field(default_factory=dict)
    status: int = 200
    query: str = ""


def of_project(side: Side, _arguments: Arguments) -> Fields:
    """A new thing in the first project."""
    return {"name": "new", "project_id": str(side.project_id), "scopes": "chat"}


def of_first_project(side: Side, _arguments: Arguments) -> Fields:
    """The first project, by a form's field."""
    return {"project": str(side.project_id)}


def an_account(side: Side, _arguments: Arguments) -> Fields:
    """A service account, by a form's field."""
    return {"account_id": str(service_account(side)["service_account_id"])}


def a_top_up(side: Side, _arguments: Arguments) -> Fields:
    """A top-up that nobody has paid, by a form's field."""
    return {"top_up": str(waiting_top_up(side)["top_up_id"])}


def job(side: Side) -> Arguments:
    """A summarisation job of the first project's."""
    made = made_summary(owner_of(side), state="in_progress")
    return {"job_id": UUID(made["summary_id"][-32:])}


def deleted_results(side: Side) -> Arguments:
    """A job whose results are gone."""
    made = job(side)
    in_state("cancelled", made)
    batch_jobs.facade.delete_results(owner_of(side), made["job_id"])
    return made


def batch_input(side: Side) -> Arguments:
    """The file that a batch reads."""
    return {"job_id": UUID(batch(side)["batch_id"][-32:]), "which": "input"}


def of_file(side: Side, _arguments: Arguments) -> Fields:
    """A job out of a file of the oldest project's."""
    file_id = str(uploaded(owner_of(side)))
    model, endpoint = bulk_model(), "/v1/chat/completions"
    return {"file_ids": file_id, "model": model, "length": "short", "endpoint": endpoint}


def in_state(state: str, arguments: Arguments) -> None:
    """Brings a job to where a form may be sent."""
    BulkJob.objects.using("housekeeper").filter(id=arguments["job_id"]).update(state=state)


def steered(state: str, **fields: str) -> Form:
    """A form of a job that is in this state."""

    def of_job(_side: Side, arguments: Arguments) -> Fields:
        in_state(state, arguments)
        return fields

    return Form(of_job)


def a_member(side: Side, _arguments: Arguments) -> Fields:
    """A viewer, by a form's field."""
    return {"user_id": str(member(side)["user_id"])}


def an_invitation(side: Side, _arguments: Arguments) -> Fields:
    """An open invitation, by a form's field."""
    return {"invitation_id": str(invitation(side)["invitation_id"])}


def an_address(_side: Side, _arguments: Arguments) -> Fields:
    """Whom to invite."""
    return {"email": new_address(), "role": "viewer", "expires_after_days": "7"}


def quota(side: Side) -> Arguments:
    """A quota of the first project."""
    return {"quota_id": spend_alert_of_project(side)["alert_id"]}


def lifted_quota(side: Side) -> Arguments:
    """One that was lifted."""
    return {"quota_id": lifted_spend_alert(side)["alert_id"]}


def an_endpoint(side: Side, _arguments: Arguments) -> Fields:
    """A new endpoint, where there is room for it."""
    webhook(side)
    return {"url": "https://hooks.example.com/new"}


PAGES: dict[str, Page] = {
    "<slug:slug>/": Page(),
    "<slug:slug>/search": Page(query="q=a"),
    "<slug:slug>/usage": Page(),
    "<slug:slug>/requests": Page(),
    "<slug:slug>/requests/<str:request_id>": Page(request),
    "<slug:slug>/jobs": Page(),
    "<slug:slug>/jobs/new-summary": Page(forms={"create": Form(of_file)}),
    "<slug:slug>/jobs/new-batch": Page(forms={"create": Form(of_file)}),
    "<slug:slug>/jobs/files": Page(),
    "<slug:slug>/jobs/<uuid:job_id>": Page(
        job,
        forms={
            "start": steered("ready"),
            "preview": steered("ready"),
            "pause": steered("in_progress"),
            "resume": steered("paused"),
            "cancel": steered("in_progress"),
            "retry": steered("cancelled"),
            "change": steered("in_progress", budget="5"),
            "delete": steered("cancelled"),
        },
    ),
    "<slug:slug>/jobs/<uuid:job_id>/results": Page(job, deleted_results),
    "<slug:slug>/jobs/<uuid:job_id>/failures": Page(job, deleted_results),
    "<slug:slug>/jobs/<uuid:job_id>/files/<str:which>": Page(batch_input),
    "<slug:slug>/team": Page(forms={"remove": Form(a_member), "withdraw": Form(an_invitation)}),
    "<slug:slug>/team/invite": Page(forms={"invite": Form(an_address)}),
    "<slug:slug>/team/<uuid:user_id>": Page(
        member, deleted=former_member, forms={"change": Form({"role": "viewer"})}
    ),
    "<slug:slug>/audit": Page(query="verdict=1"),
    "<slug:slug>/audit.csv": Page(),
    "<slug:slug>/settings": Page(forms={"save": Form({"display_name": "m", "time_zone": "UTC"})}),
    "<slug:slug>/settings/data": Page(forms={"request": Form(exports_written)}),
    "<slug:slug>/settings/data/<uuid:export_id>": Page(export),
    "<slug:slug>/settings/delete": Page(
        forms={"ask": Form(status=200), "confirm": Form({"confirm": "x", "token": "x"}, status=422)}
    ),
    "<slug:slug>/projects": Page(forms={"create": Form({"name": "new"})}),
    "<slug:slug>/projects/<uuid:project_id>": Page(
        project, forms={"archive": Form({"confirm": "matrix"})}
    ),
    "<slug:slug>/projects/<uuid:project_id>/edit": Page(
        project, forms={"save": Form({"name": "renamed"})}
    ),
    "<slug:slug>/leave": Page(forms={"leave": Form({"confirm": "another"}, status=422)}),
    "<slug:slug>/playground": Page(forms={"ticket": Form(of_first_project, status=200)}),
    "<slug:slug>/keys": Page(),
    "<slug:slug>/keys/new": Page(forms={"create": Form(of_project, status=200)}),
    "<slug:slug>/keys/accounts": Page(
        forms={"create": Form(of_project), "disable": Form(an_account)}
    ),
    "<slug:slug>/keys/<uuid:key_id>": Page(key, forms={"revoke": Form({"confirm": "matrix"})}),
    "<slug:slug>/keys/<uuid:key_id>/edit": Page(
        key, forms={"save": Form({"name": "renamed", "scopes": "chat"})}
    ),
    "<slug:slug>/keys/<uuid:key_id>/rotate": Page(
        key, forms={"rotate": Form({"grace_s": "3600"}, status=200)}
    ),
    "<slug:slug>/limits": Page(),
    "<slug:slug>/limits/new": Page(
        forms={
            "create": Form(
                {
                    "whose": "organization",
                    "metric": "tokens",
                    "period": "day",
                    "limit": "1000000",
                    "effect": "tell",
                    "counts_cached": "yes",
                }
            )
        }
    ),
    "<slug:slug>/limits/<uuid:quota_id>": Page(
        quota, lifted_quota, forms={"change": Form({"limit": "7"}), "lift": Form()}
    ),
    # Nobody takes payments here: what is let through is told so.
    "<slug:slug>/billing": Page(forms={"continue": Form(a_top_up)}),
    "<slug:slug>/billing/top-up": Page(
        forms={"pay": Form({"amount": "20", "key": "matrix"}, status=503)}
    ),
    "<slug:slug>/billing/invoices": Page(),
    "<slug:slug>/billing/invoices/<uuid:invoice_id>": Page(document),
    "<slug:slug>/billing/invoices/<uuid:invoice_id>.pdf": Page(document),
    "<slug:slug>/billing/credits": Page(),
    "<slug:slug>/billing/prices": Page(),
    "<slug:slug>/billing/settings": Page(
        forms={
            "recharge": Form(),
            "warning": Form({"low_balance": "5"}),
            "profile": Form({"legal_name": "Acme"}),
        }
    ),
    "<slug:slug>/webhooks": Page(),
    "<slug:slug>/webhooks/new": Page(
        forms={"create": Form(an_endpoint, status=200)},
    ),
    "<slug:slug>/webhooks/<uuid:webhook_id>": Page(
        webhook,
        deleted_webhook,
        forms={"test": Form(), "enable": Form(), "disable": Form(), "delete": Form()},
    ),
    "<slug:slug>/webhooks/<uuid:webhook_id>/edit": Page(
        webhook, deleted_webhook, forms={"save": Form({"url": "https://hooks.example.com/new"})}
    ),
    "<slug:slug>/webhooks/<uuid:webhook_id>/rotate": Page(
        webhook, deleted_webhook, forms={"rotate": Form(status=200)}
    ),
    "<slug:slug>/webhooks/deliveries/<uuid:delivery_id>": Page(
        delivery, deleted_delivery, forms={"replay": Form()}
    ),
}
NO_PAGES: Mapping[str, str] = {
    "": "of the person whose session it is: leads to their own organization",
    "invitation": "of whoever holds the token of an invitation, which is for one address",
    "accent.css": "the same text for everybody",
}
"""Routes of the console that show nothing of a tenant's, each with the reason."""
