"""What a summarisation job will take: tokens, price and time, said before it starts.

The numbers come from what was measured while the documents were read and from what ran lately, and
say of which kind they are. What the prefix cache will save is left out. Called by ingestion.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connections
from psycopg.types.json import Jsonb

from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob
from batch_jobs.ports import ModelTerms
from batch_jobs.summaries.drafting import PageDraft
from batch_jobs.summaries.fitting import Fitter
from batch_jobs.summaries.options import SummaryOptions
from batch_jobs.summaries.splitting import CountTokens

SAMPLES_PER_PAGE = 4
SAMPLE_CHARS_MAX = 4096
TEMPLATE_TOKENS_USUAL = 32
"""What a chat template puts around a request."""
BUCKET_S = 10
_COMPLETION_TOKENS = """
    SELECT avg(completion_tokens)::float FROM (
        SELECT completion_tokens FROM bulk_item
         WHERE state = 'done' AND request_id IS NOT NULL AND job_id = (
            SELECT j.id FROM bulk_job j JOIN bulk_summary_plan p ON p.job_id = j.id
             WHERE j.organization_id = %(organization)s AND j.project_id = %(project)s
               AND j.kind = 'summary' AND j.state = 'completed'
               AND j.results_deleted_at IS NULL AND j.completion_tokens > 0
               AND p.options - '{id_field,text_field}'::text[] = %(options)s
             ORDER BY j.id DESC LIMIT 1)
         LIMIT 1000) AS recent"""
_TOKENS_PER_S = """
    SELECT sum(prompt_tokens + completion_tokens)::float
           / (count(DISTINCT bucket_at) * %(bucket_s)s)
      FROM bulk_progress
     WHERE bucket_at > now() - interval '1 day' AND organization_id = %(organization)s
       AND job_id IN (SELECT id FROM bulk_job WHERE organization_id = %(organization)s
                       ORDER BY id DESC LIMIT 200)"""


@dataclass(slots=True)
class Measured:
    """What reading a job's documents found that will have to be computed."""

    requests: int = 0
    merged: int = 0
    """Summaries that merges will read."""
    text_bytes: int = 0
    sample_bytes: int = 0
    sample_tokens: int = 0

    def add(self, page: PageDraft, count_tokens: CountTokens) -> None:
        """One more page, with some of its texts counted."""
        self.requests += page.requests
        self.merged += page.merged
        self.text_bytes += page.shard_bytes
        stride = max(1, len(page.texts) // SAMPLES_PER_PAGE)
        samples = [text[:SAMPLE_CHARS_MAX] for text in page.texts[::stride]]
        self.sample_bytes += sum(len(sample.encode()) for sample in samples)
        self.sample_tokens += sum(count_tokens(samples))

    def tokens(self) -> int:
        """Of all texts together, rounded up."""
        return math.ceil(self.sample_tokens * self.text_bytes / max(1, self.sample_bytes))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a whole job; amounts in pico-units. `duration_s` is None when nothing of the
    organization's ran lately: how fast others are served is not its to know.

    `prompt_basis` is `counted` or `sampled`; `completion_basis` is `measured`, on a job of the
    project's with the same options, or `at_most`.
    """

    prompt_tokens: int
    completion_tokens: int
    amount_pico: int
    interactive_amount_pico: int
    duration_s: int | None
    prompt_basis: str
    completion_basis: str

    def to_json(self) -> dict[str, Any]:  # JSON
        """As `bulk_summary_plan.estimate` keeps it."""
        return asdict(self)


def prompt_tokens_least(measured: Measured, fitter: Fitter) -> int:
    """Of what was read so far, without what merges will read."""
    around = fitter.instruction_tokens + TEMPLATE_TOKENS_USUAL
    return measured.tokens() + measured.requests * around


def estimate(
    job: LeasedJob,
    options: SummaryOptions,
    measured: Measured,
    fitter: Fitter,
    terms: ModelTerms,
) -> Estimate:
    """What is left to compute of a job that is read to its end."""
    recent = _number(
        _COMPLETION_TOKENS,
        organization=job.organization_id,
        project=job.project_id,
        options=Jsonb(_asked(options)),
    )
    each = fitter.summary_tokens_max if recent is None else recent
    prompt = prompt_tokens_least(measured, fitter) + math.ceil(measured.merged * each)
    completion = math.ceil(measured.requests * each)
    tokens_per_s = _number(_TOKENS_PER_S, bucket_s=BUCKET_S, organization=job.organization_id)
    return Estimate(
        prompt_tokens=prompt,
        completion_tokens=completion,
        amount_pico=prompt * terms.input_micros_per_mtok
        + completion * terms.output_micros_per_mtok,
        interactive_amount_pico=prompt * terms.interactive_input_micros_per_mtok
        + completion * terms.interactive_output_micros_per_mtok,
        duration_s=math.ceil((prompt + completion) / tokens_per_s) if tokens_per_s else None,
        prompt_basis="counted" if measured.sample_bytes == measured.text_bytes else "sampled",
        completion_basis="at_most" if recent is None else "measured",
    )


def _asked(options: SummaryOptions) -> dict[str, Any]:
    fields = options.to_json()
    return {name: fields[name] for name in fields if name not in ("id_field", "text_field")}


def _number(query: str, **params: Any) -> float | None:
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(query, params)
        value = cursor.fetchone()[0]
    return None if value is None else float(value)
