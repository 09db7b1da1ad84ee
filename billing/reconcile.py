"""The invariants of money, checked over the whole database in one consistent read.

Never repairs anything: it says what is wrong. Runs as the housekeeper. Called by
`manage.py reconcile`, by tests and by the demo; other packages register what they owe the books.
"""

from collections.abc import Iterable

from django.db import connections, transaction

from billing.catalog import invariants
from billing.contracts import Invariant, InvariantReport
from billing.credit.invariants import INVARIANTS as OF_CREDIT
from billing.invoices.invariants import INVARIANTS as OF_INVOICES
from billing.stripe_sync.invariants import INVARIANTS as OF_STRIPE
from billing.usage.invariants import INVARIANTS as OF_USAGE

FINDINGS_MAX = 20
"""Discrepancies reported of one invariant; the first ones are enough to stop and look."""


INVARIANTS = [
    Invariant(
        "the legs of a ledger transaction do not sum to 0",
        "billing_ledger_leg",
        """
        SELECT l.transaction_id, a.currency, sum(l.amount_pico)
          FROM billing_ledger_leg l JOIN billing_ledger_account a ON a.id = l.account_id
         GROUP BY 1, 2 HAVING sum(l.amount_pico) <> 0""",
    ),
    Invariant(
        "an account's posted balance is not the sum of its credit legs",
        "billing_account",
        """
        SELECT a.organization_id, a.posted_pico, coalesce(sum(l.amount_pico), 0)
          FROM billing_account a
          LEFT JOIN billing_ledger_leg l ON l.account_id = a.ledger_account_id
         GROUP BY a.ledger_account_id HAVING a.posted_pico <> coalesce(sum(l.amount_pico), 0)""",
    ),
    Invariant(
        "an account's held balance is not the sum of its open holds",
        "billing_account",
        """
        SELECT a.organization_id, a.held_pico, coalesce(sum(h.amount_pico), 0)
          FROM billing_account a
          LEFT JOIN billing_hold h ON h.account_id = a.ledger_account_id AND h.state = 'open'
         GROUP BY a.ledger_account_id HAVING a.held_pico <> coalesce(sum(h.amount_pico), 0)""",
    ),
    Invariant(
        "a prepaid balance is below its floor",
        "billing_account",
        """
        SELECT organization_id, posted_pico - held_pico, floor_pico FROM billing_account
         WHERE posted_pico - held_pico < floor_pico""",
    ),
    Invariant(
        "a hold's account is not one of its tenant and currency",
        "billing_hold",
        """
        SELECT h.id, h.account_id FROM billing_hold h
          LEFT JOIN billing_account a ON a.ledger_account_id = h.account_id
           AND a.organization_id = h.organization_id AND a.currency = h.currency
         WHERE a.ledger_account_id IS NULL""",
    ),
    Invariant(
        "a hold's unit prices are not those of its price rows",
        "billing_hold",
        invariants.PRICES_NOT_OF_THE_CATALOG,
    ),
    Invariant(
        "a posted hold has no usage event, or one of another charge",
        "billing_hold",
        """
        SELECT h.id, h.charge_pico, e.charge_pico FROM billing_hold h
          LEFT JOIN billing_usage_event e ON e.occurred_at = h.closed_at AND e.request_id = h.id
         WHERE h.state = 'posted' AND e.charge_pico IS DISTINCT FROM h.charge_pico""",
    ),
    Invariant(
        "a request has more than one usage event",
        "billing_usage_event",
        """
        SELECT request_id, count(*) FROM billing_usage_event
         GROUP BY request_id HAVING count(*) > 1""",
    ),
    Invariant(
        "a usage event belongs to no closed hold of its tenant",
        "billing_usage_event",
        """
        SELECT e.request_id, e.organization_id FROM billing_usage_event e
          LEFT JOIN billing_hold h ON h.id = e.request_id AND h.closed_at = e.occurred_at
           AND h.organization_id = e.organization_id
         WHERE h.id IS NULL""",
    ),
    Invariant(
        "a usage event's ledger transaction is missing or charges something else",
        "billing_usage_event",
        """
        SELECT e.request_id, e.charge_pico, t.id, -coalesce(c.amount_pico, 0)
          FROM billing_usage_event e
          LEFT JOIN billing_ledger_tx t ON t.id = e.ledger_tx_id
           AND t.organization_id = e.organization_id
           AND t.idempotency_key = 'usage:' || e.request_id
          LEFT JOIN (SELECT l.transaction_id, l.amount_pico FROM billing_ledger_leg l
                       JOIN billing_ledger_account a ON a.id = l.account_id
                      WHERE a.kind = 'credit') c ON c.transaction_id = t.id
         WHERE t.id IS NULL OR e.charge_pico <> -coalesce(c.amount_pico, 0)""",
    ),
    Invariant(
        "a usage transaction has no usage event",
        "billing_ledger_tx",
        """
        SELECT t.id, t.idempotency_key FROM billing_ledger_tx t
          LEFT JOIN billing_usage_event e ON e.ledger_tx_id = t.id
         WHERE t.kind = 'usage' AND e.request_id IS NULL""",
    ),
    Invariant(
        "a quota counter is not the sum of its window's holds",
        "billing_quota_counter",
        """
        SELECT c.policy_id, c.subject, c.window_start, c.used_amount, c.held_amount,
               coalesce(s.used, 0), coalesce(s.held, 0)
          FROM billing_quota_counter c
          JOIN billing_quota_policy p ON p.id = c.policy_id AND p.lifted_at IS NULL
          LEFT JOIN (
               SELECT p.id AS policy_id, billing_quota_subject(p, h.end_user) AS subject,
                      date_trunc(p.period, h.created_at, p.time_zone) AS window_start,
                      coalesce(sum(billing_quota_used(
                          p, h.uncached_input_tokens, h.cached_input_tokens, h.output_tokens,
                          h.charge_pico)) FILTER (WHERE h.state = 'posted'), 0) AS used,
                      coalesce(sum(billing_quota_reserved(
                          p, h.prompt_tokens, h.output_tokens_max, h.amount_pico))
                          FILTER (WHERE h.state = 'open'), 0) AS held
                 FROM billing_quota_policy p
                 JOIN billing_hold h ON h.organization_id = p.organization_id
                  AND billing_quota_covers(p, h.project_id, h.key_id, h.end_user)
                WHERE p.lifted_at IS NULL
                GROUP BY 1, 2, 3) AS s
            ON (s.policy_id, s.subject, s.window_start)
             = (c.policy_id, c.subject, c.window_start)
         WHERE (c.used_amount, c.held_amount)
               IS DISTINCT FROM (coalesce(s.used, 0), coalesce(s.held, 0))""",
    ),
    Invariant(
        "a correction is of no usage event, or its ledger transaction moves something else",
        "billing_correction",
        invariants.CORRECTION_MISPOSTED,
    ),
    Invariant(
        "a correction transaction has no correction",
        "billing_ledger_tx",
        invariants.CORRECTION_MISSING,
    ),
    Invariant(
        "a correction does not start from what its event had come to",
        "billing_correction",
        invariants.CORRECTIONS_NOT_CHAINED,
    ),
    Invariant(
        "a usage event fell into the default partition",
        "billing_usage_event",
        """
        SELECT request_id, occurred_at FROM billing_usage_event
         WHERE tableoid = 'billing_usage_event_default'::regclass""",
    ),
    Invariant(
        "an hour's usage, counted and queued, is not that of its events",
        "billing_usage_hour",
        """
        SELECT organization_id, hour, project_id, key_id, model_served, tier, currency,
               sum(requests) AS requests, sum(charge_pico) AS charge_pico
          FROM (SELECT organization_id, date_trunc('hour', occurred_at, 'UTC') AS hour,
                       project_id, key_id, model_served, tier, currency, 1 AS requests,
                       billing_usage_is_error(finish_reason)::int AS errors,
                       uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico,
                       charge_pico
                  FROM billing_usage_event e
                 WHERE NOT EXISTS (SELECT FROM billing_usage_delta d
                                    WHERE d.organization_id = e.organization_id
                                      AND d.request_id = e.request_id)
                UNION ALL
                SELECT organization_id, hour, project_id, key_id, model_served, tier, currency,
                       -requests, -errors, -uncached_input_tokens, -cached_input_tokens,
                       -output_tokens, -cost_pico, -charge_pico
                  FROM billing_usage_hour) AS counted
         GROUP BY 1, 2, 3, 4, 5, 6, 7
        HAVING sum(requests) <> 0 OR sum(errors) <> 0 OR sum(uncached_input_tokens) <> 0
            OR sum(cached_input_tokens) <> 0 OR sum(output_tokens) <> 0
            OR sum(cost_pico) <> 0 OR sum(charge_pico) <> 0""",
    ),
    Invariant(
        "an hour's usage of a tag, counted and queued, is not that of its events",
        "billing_usage_tag_hour",
        """
        SELECT organization_id, hour, tag_name, project_id, key_id, model_served, tier,
               sum(requests) AS requests, sum(charge_pico) AS charge_pico
          FROM (SELECT e.organization_id, date_trunc('hour', e.occurred_at, 'UTC') AS hour,
                       tag_name, e.project_id, e.key_id, e.model_served, e.tier, 1 AS requests,
                       e.uncached_input_tokens + e.cached_input_tokens + e.output_tokens
                           AS tokens, e.charge_pico
                  FROM billing_usage_event e
                 CROSS JOIN LATERAL
                       jsonb_object_keys(billing_usage_tags(e.tags, e.end_user)) AS tag_name
                 WHERE NOT EXISTS (SELECT FROM billing_usage_delta d
                                    WHERE d.organization_id = e.organization_id
                                      AND d.request_id = e.request_id)
                UNION ALL
                SELECT organization_id, hour, tag_name, project_id, key_id, model_served, tier,
                       -requests, -uncached_input_tokens - cached_input_tokens - output_tokens,
                       -charge_pico
                  FROM billing_usage_tag_hour) AS counted
         GROUP BY 1, 2, 3, 4, 5, 6, 7
        HAVING sum(requests) <> 0 OR sum(tokens) <> 0 OR sum(charge_pico) <> 0""",
    ),
    Invariant(
        "a queued usage event does not exist",
        "billing_usage_delta",
        """
        SELECT d.request_id, d.occurred_at FROM billing_usage_delta d
          LEFT JOIN billing_usage_event e ON e.occurred_at = d.occurred_at
           AND e.request_id = d.request_id AND e.organization_id = d.organization_id
         WHERE e.request_id IS NULL""",
    ),
    Invariant(
        "an entry of an audit log was changed, or does not follow the one before it",
        "tenants_audit_log",
        """
        SELECT organization_id, sequence, action FROM (
            SELECT l.organization_id, l.sequence, l.action, l.previous_hash, l.hash,
                   sha256(l.previous_hash || tenants_audit_canonical(l)) AS expected,
                   lag(l.sequence) OVER chain AS sequence_before,
                   lag(l.hash) OVER chain AS hash_before
              FROM tenants_audit_log l
            WINDOW chain AS (PARTITION BY l.organization_id ORDER BY l.sequence)) AS entry
         WHERE hash <> expected OR sequence <> coalesce(sequence_before, 0) + 1
            OR previous_hash <> coalesce(hash_before, decode(repeat('00', 32), 'hex'))""",
    ),
    Invariant(
        "an audit log does not end where its head says",
        "tenants_audit_head",
        """
        SELECT h.organization_id, h.sequence, l.organization_id, l.sequence
          FROM tenants_audit_head h
          FULL JOIN (SELECT DISTINCT ON (organization_id) organization_id, sequence, hash
                       FROM tenants_audit_log ORDER BY organization_id, sequence DESC) l
            ON l.organization_id = h.organization_id
         WHERE (h.sequence, h.hash) IS DISTINCT FROM (l.sequence, l.hash)
           AND NOT (h.sequence = 0 AND l.sequence IS NULL)""",
    ),
    *(Invariant(*one) for one in (*OF_CREDIT, *OF_INVOICES, *OF_STRIPE, *OF_USAGE)),
]


_registered: list[Invariant] = []


def register_invariants(invariants_of_others: Iterable[Invariant]) -> None:
    """Called by the wiring, once a process: they are checked in the same read, after ours."""
    _registered.extend(invariants_of_others)


def reconcile(using: str = "housekeeper") -> list[str]:
    """Every discrepancy as a readable line, at most FINDINGS_MAX an invariant; empty is good."""
    return [
        f"{report.broken_when}: {finding}"
        for report in reconcile_report(using)
        for finding in report.findings
    ]


def reconcile_report(using: str = "housekeeper") -> list[InvariantReport]:
    """What each invariant came to, in the order checked; at most FINDINGS_MAX findings each."""
    counted: dict[str, int] = {}
    reports = []
    with transaction.atomic(using=using, durable=True), connections[using].cursor() as cursor:
        # One snapshot: a request settling meanwhile must not look like a discrepancy.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for invariant in (*INVARIANTS, *_registered):
            if invariant.table not in counted:
                cursor.execute(f"SELECT count(*) FROM {invariant.table}")  # noqa: S608 - of our own list
                (counted[invariant.table],) = cursor.fetchone() or (0,)
            cursor.execute(f"{invariant.query} LIMIT {FINDINGS_MAX}")
            findings = [", ".join(str(value) for value in row) for row in cursor.fetchall()]
            reports.append(
                InvariantReport(
                    broken_when=invariant.broken_when,
                    table=invariant.table,
                    rows=counted[invariant.table],
                    findings=tuple(findings),
                )
            )
    return reports
