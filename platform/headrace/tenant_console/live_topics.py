"""What the tenant's pages show live: read here, shown by `templates/tenant_console/live/`.

A topic's template is included by the page that follows it too, so that what comes first and what
comes later look the same. Named by the live socket, which the ASGI application makes.
"""

from collections.abc import Mapping
from uuid import UUID

import batch_jobs.facade
import billing.facade
from batch_jobs.contracts import JobNotFound
from headrace.console_kit.live.topics import Asked, Context, Topic
from headrace.management_api.bulk.progress_feed import ENDED
from tenants.contracts import Permission


def usage(asked: Asked) -> Context:
    """How much is used."""
    place = asked.place
    return {
        "overview": billing.facade.usage_overview(
            place.organization_id, asked.now, place.time_zone
        ),
    }


def limits(asked: Asked) -> Context:
    """How full quotas are, and the balance."""
    return {
        "quotas": billing.facade.quotas(asked.actor),
        "balance": billing.facade.balance(asked.place.organization_id),
    }


def job(asked: Asked) -> Context | None:
    """How a job goes, which its plain UUID names."""
    try:
        job_id = UUID(asked.subject)
        view = batch_jobs.facade.find_job(asked.place.organization_id, job_id)
    except (ValueError, JobNotFound):
        return None
    return {"job_view": view}


def job_has_ended(context: Context) -> bool:
    """Nothing happens to it any more."""
    return context["job_view"].job.state in ENDED


TOPICS: Mapping[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic("usage", Permission.USAGE_READ, "tenant_console/live/usage.html", usage),
        Topic("limits", Permission.LIMITS_READ, "tenant_console/live/limits.html", limits),
        Topic(
            "job",
            Permission.JOBS_READ,
            "tenant_console/live/job.html",
            job,
            takes_subject=True,
            paced=True,
            is_last=job_has_ended,
        ),
    )
}
