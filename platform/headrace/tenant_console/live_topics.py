"""What the tenant's pages show live: read here, shown by templates of the pages.

A topic's template is included by the page that follows it too, so that what comes first and what
comes later look the same. Named by the live socket, which the ASGI application makes.
"""

from collections.abc import Mapping
from uuid import UUID
from zoneinfo import ZoneInfo

import batch_jobs.facade
import billing.facade
import tenants.facade
from batch_jobs.contracts import JobNotFound, JobView
from headrace.console_kit.live.topics import Asked, Context, Topic
from headrace.management_api.bulk.progress_feed import ENDED
from headrace.tenant_console.billing.named import available_pico
from headrace.tenant_console.jobs.live import live_context
from headrace.tenant_console.jobs.showing import cells
from headrace.tenant_console.limits.meters import minute_limits, quota_meter
from headrace.tenant_console.overview.tiles import tiles
from tenants.contracts import Permission


def usage(asked: Asked) -> Context:
    """The numbers of the overview."""
    place = asked.place
    overview = billing.facade.usage_overview(place.organization_id, asked.now, place.time_zone)
    return tiles(overview, billing.facade.quotas(asked.actor), ZoneInfo(place.time_zone))


def limits(asked: Asked) -> Context:
    """How full quotas and minute limits are."""
    place = asked.place
    minutes = minute_limits(place.organization_id, tenants.facade.minute_limited(asked.actor))
    quotas = billing.facade.quotas(asked.actor)
    return {
        "meters": [
            *(quota_meter(one, place.currency) for one in quotas),
            *(one.meter for one in minutes),
        ]
    }


def balance(asked: Asked) -> Context:
    """What there is to spend."""
    account = billing.facade.balance(asked.place.organization_id)
    return {"balance": account, "available_pico": available_pico(account)}


def job(asked: Asked) -> Context | None:
    """How a job goes, which its plain UUID names."""
    view = _job_view(asked)
    if view is None:
        return None
    return live_context(view, asked.place.organization_id, asked.place.currency)


def job_row(asked: Asked) -> Context | None:
    """What a list shows of a job."""
    view = _job_view(asked)
    return None if view is None else {"job": view.job, "cells": cells(view, asked.place.currency)}


def job_has_ended(context: Context) -> bool:
    """Nothing happens to it any more."""
    return context["job"].state in ENDED


def _job_view(asked: Asked) -> JobView | None:
    try:
        return batch_jobs.facade.find_job(asked.place.organization_id, UUID(asked.subject))
    except (ValueError, JobNotFound):
        return None


USAGE = frozenset({Permission.USAGE_READ, Permission.LIMITS_READ})
LIMITS = frozenset({Permission.LIMITS_READ})
BILLING = frozenset({Permission.BILLING_READ})
JOBS = frozenset({Permission.JOBS_READ})
TOPICS: Mapping[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic("usage", USAGE, "tenant_console/overview/tiles.html", usage),
        Topic("limits", LIMITS, "tenant_console/live/limits.html", limits),
        Topic("balance", BILLING, "tenant_console/live/balance.html", balance),
        Topic(
            "job",
            JOBS,
            "tenant_console/jobs/live.html",
            job,
            takes_subject=True,
            paced=True,
            is_last=job_has_ended,
        ),
        Topic(
            "job_row",
            JOBS,
            "tenant_console/jobs/row_live.html",
            job_row,
            takes_subject=True,
            paced=True,
            is_last=job_has_ended,
        ),
    )
}
