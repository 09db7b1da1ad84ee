"""`/console/<slug>/jobs`: batches and summarisation jobs of all projects, or of one.

Reads a page of jobs and the names of their keys, never an item. Called by the console's routes.
"""

from collections.abc import Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponse

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import JobView
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.tenant_console.jobs.showing import ENDED, cells, name_of
from tenants.contracts import Permission

JOBS_SHOWN_MAX = 25
KINDS = {"": "All", "summary": "Summaries", "batch": "Batches"}
STATES = {"": "Any state", "unfinished": "Unfinished", "ended": "Ended"}
HAS_ENDED = {"unfinished": False, "ended": True}


class JobsPage(PageView):
    """All jobs, newest first."""

    page = "jobs"
    title = "Jobs"
    needs = Permission.JOBS_READ
    template = "tenant_console/jobs/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?project=`, `?kind=`, `?state=`, `?after=`."""
        kind = request.GET.get("kind") if request.GET.get("kind") in KINDS else ""
        state = request.GET.get("state") if request.GET.get("state") in STATES else ""
        after = self.asked_id("after")
        project_id = self.project.project_id if self.project else None
        views = batch_jobs.facade.list_jobs(
            self.organization_id,
            rows_max=JOBS_SHOWN_MAX + 1,
            after=after,
            project_id=project_id,
            kind=kind or None,
            has_ended=HAS_ENDED.get(state or ""),
        )
        filters = {"project": project_id, "kind": kind, "state": state}
        shown = views[:JOBS_SHOWN_MAX]
        next_href = ""
        if len(views) > JOBS_SHOWN_MAX:
            next_href = self.url("jobs", **filters, after=shown[-1].job.job_id)
        return self.show(
            table=self._table(shown, next_href),
            is_empty=not shown and not (kind or state or after),
            kinds=self._segments("kind", KINDS, filters),
            states=self._segments("state", STATES, filters),
            may_make=self.may(Permission.JOBS_WRITE),
            new_summary=self.url("new-summary", project=project_id),
            new_batch=self.url("new-batch", project=project_id),
            base_url=f"{settings.PUBLIC_URL}/v1",
            topics=",".join(
                f"job_row:{one.job.job_id}" for one in shown if one.job.state not in ENDED
            ),
        )

    def _segments(
        self, name: str, choices: Mapping[str, str], filters: Mapping[str, object]
    ) -> list[tuple[str, str, bool]]:
        return [
            (label, self.url("jobs", **{**filters, name: value}), filters[name] == value)
            for value, label in choices.items()
        ]

    def _table(self, views: list[JobView], next_href: str) -> Table:
        key_ids = {view.job.key_id for view in views}
        keys = tenants.facade.key_names(self.actor, key_ids) if key_ids else {}
        projects = {one.project_id: one.name for one in self.projects}
        has_project = self.project is None and len(projects) > 1
        columns = [
            Column("Job"),
            Column("State"),
            Column("Progress"),
            Column("Speed", is_number=True, hides=True),
            Column("Cost so far", is_number=True, hides=True),
            Column("Remaining", is_number=True, hides=True),
            *([Column("Project", hides=True)] if has_project else []),
            Column("Created", hides=True),
            Column("API key", hides=True),
        ]
        rows = []
        for view in views:
            job, changing = view.job, cells(view, self.currency)
            project = projects.get(job.project_id, "archived project")
            rows.append(
                Row(
                    [
                        name_of(job),
                        changing.state,
                        changing.progress,
                        changing.speed,
                        changing.charge,
                        changing.remaining,
                        *([project] if has_project else []),
                        formats.age(job.created_at, self.zone, self.now),
                        keys.get(job.key_id, formats.UNKNOWN),
                    ],
                    href=self.url("job", job.job_id),
                )
            )
        return Table("Jobs", columns, rows, "No job is like this.", next_href)
