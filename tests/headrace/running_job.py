"""A summarisation job under way, as the command reads it from the API."""

from headrace.command_line.jobs import Job

JOB = Job(
    job_id="summary_1",
    status="in_progress",
    pause_reason="",
    model="mill",
    name="",
    created_at="2027-01-01T00:00:00+00:00",
    total=2000,
    completed=500,
    failed=3,
    duplicate=0,
    known=0,
    prompt_tokens=100_000,
    cached_tokens=50_000,
    completion_tokens=10_000,
    amount="0.012345678901",
    currency="USD",
    budget=None,
    documents_per_s=12.34,
    tokens_per_s=2460.0,
    remaining_s=130,
    results_shards=1,
    estimate=None,
    errors=(),
)
