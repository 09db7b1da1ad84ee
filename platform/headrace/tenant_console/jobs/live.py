"""What of a job changes while somebody looks at it: in lists and on its own page.

Read once for all who look: in nobody's name, with nothing but the job. Called by the page of a job
and by the live topic of jobs.
"""

from typing import Any
from uuid import UUID

import billing.facade
from batch_jobs.contracts import BulkJobInfo, JobView
from billing.contracts import ModelNotFound, ModelRetired, ServiceTier
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.tenant_console.jobs.showing import (
    ENDED,
    cells,
    pause_text,
    progress_bar,
    remaining_text,
    shown_state,
    speed,
)


def live_context(
    view: JobView, organization_id: UUID, currency: str
) -> dict[str, Any]:  # a template's
    """What `jobs/live.html` and `jobs/numbers.html` show."""
    job = view.job
    interactive_pico = _interactive_pico(job, organization_id)
    return {
        "job": job,
        "summary": view.summary,
        "cells": cells(view, currency),
        "shown_state": shown_state(view),
        "pause_text": pause_text(job),
        "progress": progress_bar(job),
        "speed": speed(view),
        "remaining": remaining_text(view),
        "saved_pico": None if interactive_pico is None else interactive_pico - job.charge_pico,
        "interactive_pico": interactive_pico,
        "account": _account(view, interactive_pico, currency),
        "basis": _basis(view),
        "ended": job.items_completed + job.items_failed,
        "has_ended": job.state in ENDED,
        "duration_ms": _duration_ms(job),
    }


def _account(view: JobView, interactive_pico: int | None, currency: str) -> Table:
    """What was estimated beside what it took so far."""
    job = view.job
    estimate = view.summary.estimate if view.summary else {}

    def amount(amount_pico: object) -> object:
        return formats.money(None if amount_pico is None else int(str(amount_pico)), currency)

    lines = [
        ("Prompt tokens", formats.count(estimate.get("prompt_tokens")), job.prompt_tokens),
        ("of these cached", formats.UNKNOWN, job.cached_tokens),
        (
            "Completion tokens",
            formats.count(estimate.get("completion_tokens")),
            job.completion_tokens,
        ),
    ]
    rows = [Row([name, estimated, formats.count(actual)]) for name, estimated, actual in lines]
    rows.append(Row(["Cost", amount(estimate.get("amount_pico")), amount(job.charge_pico)]))
    rows.append(
        Row(
            [
                "At the interactive price",
                amount(estimate.get("interactive_amount_pico")),
                amount(interactive_pico),
            ]
        )
    )
    duration_s = estimate.get("duration_s")
    rows.append(
        Row(
            [
                "Duration",
                formats.duration_text(None if duration_s is None else duration_s * 1000),
                formats.duration_text(_duration_ms(job)),
            ]
        )
    )
    columns = [
        Column("What", is_hidden_title=True),
        Column("Estimate", is_number=True),
        Column("Actual" if job.state in ENDED else "So far", is_number=True),
    ]
    if not estimate:
        columns.pop(1)
        rows = [Row([row.cells[0], row.cells[2]]) for row in rows]
    return Table("Estimate against actual", columns, rows)


def _basis(view: JobView) -> str:
    """What the estimate stands on."""
    estimate = view.summary.estimate if view.summary else {}
    if not estimate:
        return ""
    words = {"counted": "counted", "sampled": "from samples"}
    prompt = words.get(estimate["prompt_basis"], estimate["prompt_basis"])
    is_measured = estimate["completion_basis"] == "measured"
    completion = "as an earlier job had them" if is_measured else "at most"
    return f"Estimate: prompt tokens {prompt}, completion tokens {completion}"


def _duration_ms(job: BulkJobInfo) -> int | None:
    """From its start to its end, once it has one."""
    ended_at = job.completed_at or job.expired_at or job.cancelled_at
    if job.in_progress_at is None or ended_at is None:
        return None
    return int((ended_at - job.in_progress_at).total_seconds() * 1000)


def _interactive_pico(job: BulkJobInfo, organization_id: UUID) -> int | None:
    """What these tokens cost somebody who waits, at today's prices; None before there are any."""
    if not job.model or not job.charge_pico:
        return None
    try:
        quote = billing.facade.quote(
            organization_id, job.project_id, job.model, ServiceTier.INTERACTIVE
        )
    except (ModelNotFound, ModelRetired):
        return None
    return (
        (job.prompt_tokens - job.cached_tokens) * quote.input_micros_per_mtok
        + job.cached_tokens * quote.cached_input_micros_per_mtok
        + job.completion_tokens * quote.output_micros_per_mtok
    )
