"""The cast of bulk jobs: tenants with a project and a key, and a pipeline by script."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from batch_jobs.facade import create_summary_job
from batch_jobs.ports import BatchAnswer, BatchCompletion, BatchCompletionResult
from tenants import facade

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Tenant:
    """An organization that asks for summaries."""

    organization_id: UUID
    project_id: UUID
    key_id: UUID
    secret: str

    def submit(self, *custom_ids: str) -> UUID:
        """A job over one document for each custom id."""
        job = create_summary_job(
            self.organization_id,
            self.project_id,
            self.key_id,
            [(custom_id, f"text of {custom_id}") for custom_id in custom_ids],
            model="small",
            documents_max=1000,
        )
        return job.job_id


def make_tenant(name: str) -> Tenant:
    """A fresh organization: tests share the database and never meet."""
    organization = facade.create_organization(
        f"{name}-{next(_numbers)}-{uuid4().hex[:8]}", name, using="housekeeper"
    )
    organization_id = organization.organization_id
    project_id = facade.create_project(organization_id, "bulk", using="housekeeper")
    key = facade.issue_key(organization_id, project_id, "bulk", using="housekeeper")
    return Tenant(organization_id, project_id, key.key_id, key.secret)


@dataclass
class ScriptedPort:
    """A pipeline that answers by script; it charges 7 pico-units for each answer that was stored.

    `on_start` runs before the answers, as a chance to make things happen meanwhile. `results` has
    what to report for a document instead of an answer, by its text.
    """

    results: dict[str, list[BatchCompletionResult]] = field(default_factory=dict)
    on_start: Callable[[Sequence[BatchCompletion]], None] = lambda _: None
    charges: dict[UUID, int] = field(default_factory=dict)
    asked: list[BatchCompletion] = field(default_factory=list)

    def complete(
        self,
        completions: Sequence[BatchCompletion],
        on_answer: Callable[[BatchAnswer], bool],
        on_result: Callable[[BatchCompletionResult], None],
    ) -> None:
        """One after the other."""
        self.asked.extend(completions)
        self.on_start(completions)
        for completion in completions:
            request_id = completion.request_id
            # The document comes after the instruction and an empty line.
            text = completion.body["messages"][-1]["content"].partition("\n\n")[2]
            scripted = self.results.get(text)
            if scripted:
                failure = scripted.pop(0)
                self.charges[request_id] = 0
                on_result(
                    BatchCompletionResult(
                        request_id,
                        0,
                        failure.error_code,
                        failure.error_message,
                        failure.retryable,
                        failure.deferred,
                    )
                )
                continue
            stored = on_answer(BatchAnswer(request_id, f"summary of {text}", 10, 4, 3))
            self.charges[request_id] = 7 if stored else 0
            on_result(
                BatchCompletionResult(
                    request_id, self.charges[request_id], None if stored else "superseded"
                )
            )

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """None while this port has not settled it."""
        return self.charges.get(request_id)

    def knows_model(self, organization_id: UUID, project_id: UUID, model: str) -> bool:
        """Any."""
        return True
