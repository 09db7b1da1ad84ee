"""What must hold of bulk work: the queries that `manage.py reconcile` runs for it.

Each is a statement, the table it is about, and a query of the rows that break it, set by set:
there may be millions of items. Ours alone; what an item was charged is compared with the ledger
in `headrace.reconciling`. Handed out by the facade.
"""

JOB_NOT_ITS_ITEMS = """
    SELECT j.id, j.state, j.items_total, i.total, j.items_completed, i.completed,
           j.items_failed, i.failed, j.prompt_tokens, i.prompt, j.cached_tokens, i.cached,
           j.completion_tokens, i.completion, j.charge_pico, i.charge
      FROM bulk_job j
      LEFT JOIN (SELECT job_id, count(custom_id) AS total,
                        count(custom_id) FILTER (WHERE state = 'done') AS completed,
                        count(custom_id) FILTER (WHERE state = 'failed') AS failed,
                        sum(prompt_tokens) FILTER (WHERE state = 'done') AS prompt,
                        sum(cached_tokens) FILTER (WHERE state = 'done') AS cached,
                        sum(completion_tokens) FILTER (WHERE state = 'done') AS completion,
                        sum(charge_pico) AS charge
                   FROM bulk_item WHERE state IN ('done', 'failed') OR custom_id IS NOT NULL
                  GROUP BY job_id) AS i ON i.job_id = j.id
     WHERE j.results_deleted_at IS NULL AND j.state NOT IN ('validating', 'failed')
       AND (j.items_total, j.items_completed, j.items_failed, j.prompt_tokens, j.cached_tokens,
            j.completion_tokens, j.charge_pico)
        IS DISTINCT FROM (
            coalesce(i.total, 0), coalesce(i.completed, 0), coalesce(i.failed, 0),
            coalesce(i.prompt, 0), coalesce(i.cached, 0), coalesce(i.completion, 0),
            coalesce(i.charge, 0))"""

UNFINISHED_OF_FINISHED = """
    SELECT i.id, i.state, j.id, j.state FROM bulk_item i JOIN bulk_job j ON j.id = i.job_id
     WHERE i.state IN ('waiting', 'queued', 'leased', 'answered')
       AND j.state IN ('completed', 'failed', 'expired', 'cancelled')"""

CHARGED_FOR_NOTHING = """
    SELECT id, state, request_id, charge_pico FROM bulk_item
     WHERE charge_pico <> 0 AND (state <> 'done' OR request_id IS NULL)"""

ANSWERED_TWICE = """
    SELECT request_id, count(*) FROM bulk_item
     WHERE request_id IS NOT NULL GROUP BY request_id HAVING count(*) > 1"""

NO_ATTEMPT = """
    SELECT i.id, i.request_id FROM bulk_item i
      LEFT JOIN bulk_attempt a ON a.request_id = i.request_id AND a.item_id = i.id
       AND a.organization_id = i.organization_id
     WHERE i.request_id IS NOT NULL AND a.request_id IS NULL"""

WAITS_FOR_NOBODY = """
    SELECT p.id, p.parts_left, count(c.id) FILTER (WHERE c.state <> 'done')
      FROM bulk_item p JOIN bulk_item c ON c.parent_id = p.id
     WHERE p.state = 'waiting'
     GROUP BY p.id HAVING p.parts_left <> count(c.id) FILTER (WHERE c.state <> 'done')"""

COPIES_NOBODY = """
    SELECT c.id, o.id, o.state, j.id FROM bulk_item c
      LEFT JOIN bulk_item o ON o.id = c.same_as_id AND o.job_id = c.job_id
      JOIN bulk_job j ON j.id = c.job_id
     WHERE c.state = 'waiting' AND c.same_as_id IS NOT NULL
       AND j.state IN ('ready', 'in_progress', 'paused')
       AND coalesce(o.state NOT IN ('waiting', 'queued', 'leased', 'answered'), true)"""

FILES_MISSING = """
    SELECT j.id, j.state, i.done, j.output_file_id, i.other, j.error_file_id
      FROM bulk_job j
      JOIN (SELECT job_id, bool_or(state = 'done') AS done, bool_or(state <> 'done') AS other
              FROM bulk_item GROUP BY job_id) AS i ON i.job_id = j.id
     WHERE j.kind = 'batch' AND j.results_deleted_at IS NULL
       AND j.state IN ('completed', 'expired', 'cancelled')
       AND (i.done AND j.output_file_id IS NULL OR i.other AND j.error_file_id IS NULL)"""

INVARIANTS = (
    ("a bulk job's totals are not those of its items", "bulk_job", JOB_NOT_ITS_ITEMS),
    ("an item is unfinished though its job is finished", "bulk_item", UNFINISHED_OF_FINISHED),
    ("an item was charged without an answer of its own", "bulk_item", CHARGED_FOR_NOTHING),
    ("two items were answered by one request", "bulk_item", ANSWERED_TWICE),
    ("an item's request is no attempt at it", "bulk_item", NO_ATTEMPT),
    ("a document waits for another number of parts than is left", "bulk_item", WAITS_FOR_NOBODY),
    ("an item waits for the answer of one that has ended", "bulk_item", COPIES_NOBODY),
    ("a finished batch has no file of what its lines came to", "bulk_job", FILES_MISSING),
)
