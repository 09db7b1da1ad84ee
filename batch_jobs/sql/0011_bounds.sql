-- What an item of a job with a budget may cost is bounded anew where prices have risen, a job is
-- only paused for its budget when something of it is due, and what was forfeited gives its claim
-- back. Run once by migration 0011: a change is a new file in a new migration. How these functions
-- are planned is said in 0004.

-- Lease up to as many items as there are new request ids, of any tenants and jobs, in turns: a
-- tenant's first job's first item, the next tenant's, ..., then each one's second. An item is to be
-- had when it is queued, or when its lease ran out. Each claim raises the fencing number; an item
-- that still has to be computed starts an attempt under a request id of its own, one already
-- answered only waits for its charge, whatever became of its job.
--
-- Of more jobs than `jobs_max` some are drawn by lot, tenants in turns, so that none is always
-- last and no claim has to write to a job. A job with a budget or a number of claims left is
-- locked: two claimers would both find room in what is left. One whose next item does not fit its
-- budget while none of its items is under way is paused. Only items of a job with a budget say what
-- they are bound to.
CREATE OR REPLACE FUNCTION batch_jobs_claim_items(
    new_request_ids uuid[], lease_s integer, jobs_max integer
)
RETURNS TABLE (
    item_id bigint, lease_token bigint, state text, attempts integer, request_id uuid,
    custom_id text, line integer, source_id uuid, source_offset bigint, source_bytes integer,
    parent_id bigint, parts boolean, bound_pico bigint, kind text, endpoint text,
    job_id uuid, organization_id uuid, project_id uuid, key_id uuid, job_created_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    seats CONSTANT integer := cardinality(new_request_ids);
    run_out_max CONSTANT integer := 1000;
    queued CONSTANT text := 'queued';
    leased CONSTANT text := 'leased';
    drawn uuid[];
    bounded uuid[];
    lapsed bigint[];
BEGIN
    -- Nobody has these any more. What cannot be computed now is queued, for whoever ends its job.
    WITH run_out AS MATERIALIZED (
        SELECT id, job_id, state FROM bulk_item
         WHERE state IN ('leased', 'answered') AND lease_expires_at <= now()
         ORDER BY lease_expires_at LIMIT run_out_max
    ), chosen AS MATERIALIZED (
        SELECT r.id, r.state = 'answered' OR j.state = 'in_progress' AS is_claimed
          FROM run_out r JOIN bulk_job j ON j.id = r.job_id
         WHERE r.state = 'answered' OR j.state <> 'in_progress' OR j.retry_at <= now()
         LIMIT seats
    ), locked AS MATERIALIZED (
        SELECT i.id, chosen.is_claimed FROM chosen JOIN bulk_item i ON i.id = chosen.id
         WHERE i.state <> queued AND i.lease_expires_at <= now()
           FOR NO KEY UPDATE OF i SKIP LOCKED
    ), lost AS (
        UPDATE bulk_item i
           SET state = 'queued', lease_token = i.lease_token + 1, lease_expires_at = NULL,
               retry_at = now()
          FROM locked WHERE i.id = locked.id AND NOT locked.is_claimed AND i.state = leased
    )
    SELECT array_agg(locked.id) INTO lapsed FROM locked WHERE locked.is_claimed;

    SELECT array_agg(id) INTO drawn FROM (
        SELECT id FROM (
            SELECT j.id, row_number() OVER (PARTITION BY j.organization_id ORDER BY random()) AS turn
              FROM bulk_job j
             WHERE j.state = 'in_progress' AND j.retry_at <= now()
               AND (j.claims_left IS NULL OR j.claims_left > 0)
               AND (j.expires_at IS NULL OR j.expires_at > now())
               AND (SELECT true FROM bulk_item i
                     WHERE i.job_id = j.id AND i.state = 'queued' AND i.retry_at <= now()
                     ORDER BY i.job_id, i.retry_at, i.place, i.id LIMIT 1)
        ) AS running
        ORDER BY turn, random() LIMIT jobs_max
    ) AS lot;
    SELECT array_agg(id) INTO bounded FROM (
        SELECT j.id FROM bulk_job j
         WHERE j.id = ANY (drawn) AND (j.budget_pico IS NOT NULL OR j.claims_left IS NOT NULL)
           AND j.state = 'in_progress'
           FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked;

    RETURN QUERY
    WITH job AS MATERIALIZED (
        SELECT j.id, j.organization_id, coalesce(least(j.claims_left, seats), seats) AS seats_max,
               CASE WHEN j.budget_pico IS NOT NULL THEN j.budget_pico - j.charge_pico - (
                   SELECT coalesce(sum(i.bound_pico), 0)
                     FROM (SELECT bound_pico FROM bulk_item
                            WHERE job_id = j.id AND state IN ('leased', 'answered')
                              AND lease_expires_at > '-infinity'
                            ORDER BY lease_expires_at LIMIT ALL OFFSET 0) AS i) END AS budget_left_pico
          FROM bulk_job j
         WHERE j.id = ANY (drawn)
           AND (j.id = ANY (bounded) OR (j.budget_pico IS NULL AND j.claims_left IS NULL))
    ), looked_at AS (
        -- Without locks: most of what there is to choose from is not chosen.
        SELECT job.id AS job_id, job.organization_id, item.turn
          FROM job
         CROSS JOIN LATERAL (
            SELECT row_number() OVER () AS turn,
                   sum(i.bound_pico) OVER (ROWS UNBOUNDED PRECEDING) AS taken_pico
              FROM (SELECT bound_pico FROM bulk_item
                     WHERE job_id = job.id AND state = 'queued' AND retry_at <= now()
                     ORDER BY job_id, retry_at, place, id
                     LIMIT job.seats_max) AS i
         ) AS item
         WHERE job.budget_left_pico IS NULL OR item.taken_pico <= job.budget_left_pico
    ), round AS (
        SELECT job_id, row_number() OVER (PARTITION BY organization_id ORDER BY turn, job_id)
               AS number
          FROM looked_at
    ), share AS (
        SELECT job_id, count(*) AS items
          FROM (SELECT job_id FROM round ORDER BY number, random()
                 LIMIT seats - coalesce(cardinality(lapsed), 0)) AS seated
         GROUP BY job_id
    ), queued AS MATERIALIZED (
        SELECT item.id, item.bound_pico, job.budget_left_pico, item.turn, job.id AS job_id
          FROM share JOIN job ON job.id = share.job_id
         CROSS JOIN LATERAL (
            SELECT i.id, i.bound_pico, row_number() OVER () AS turn
              FROM (SELECT id, bound_pico FROM bulk_item
                     WHERE job_id = job.id AND state = 'queued' AND retry_at <= now()
                     ORDER BY job_id, retry_at, place, id
                     LIMIT share.items
                       FOR NO KEY UPDATE SKIP LOCKED) AS i
         ) AS item
    ), seat AS (
        SELECT id, row_number() OVER () AS number FROM (
            SELECT unnest(lapsed) AS id
            UNION ALL
            SELECT id FROM (
                SELECT *, sum(bound_pico) OVER (PARTITION BY job_id ORDER BY turn) AS taken_pico
                  FROM queued
            ) AS q
            WHERE budget_left_pico IS NULL OR taken_pico <= budget_left_pico
        ) AS free
    ), claimed AS (
        UPDATE bulk_item i
           SET state = CASE i.state WHEN 'answered' THEN 'answered' ELSE 'leased' END,
               lease_token = i.lease_token + 1,
               lease_expires_at = now() + make_interval(secs => lease_s),
               attempts = i.attempts + (i.state <> 'answered')::int,
               request_id = CASE i.state WHEN 'answered' THEN i.request_id
                                 ELSE new_request_ids[seat.number] END
          FROM seat
         WHERE i.id = seat.id
        RETURNING i.*
    ), attempted AS (
        INSERT INTO bulk_attempt (request_id, organization_id, item_id)
        SELECT c.request_id, c.organization_id, c.id FROM claimed c WHERE c.state = 'leased'
    ), counted AS (
        UPDATE bulk_job j
           SET claims_left = greatest(0, j.claims_left - taken.items)
          FROM (SELECT job_id, count(*)::int AS items FROM queued GROUP BY job_id) AS taken
         WHERE j.id = taken.job_id AND j.claims_left IS NOT NULL
    ), used_up AS (
        UPDATE bulk_job j
           SET state = 'paused', pause_reason = 'budget', paused_at = now()
          FROM job
         WHERE j.id = job.id AND job.budget_left_pico IS NOT NULL
           AND NOT EXISTS (SELECT FROM looked_at WHERE looked_at.job_id = job.id)
           AND (SELECT true FROM bulk_item i
                 WHERE i.job_id = job.id AND i.state = 'queued' AND i.retry_at <= now()
                 ORDER BY i.job_id, i.retry_at, i.place, i.id LIMIT 1)
           AND (SELECT true FROM bulk_item i
                 WHERE i.job_id = job.id AND i.state IN ('leased', 'answered')
                   AND i.lease_expires_at > '-infinity'
                 ORDER BY i.lease_expires_at LIMIT 1) IS NULL
    )
    SELECT c.id, c.lease_token, c.state::text, c.attempts::int, c.request_id, c.custom_id::text,
           c.line, c.source_id, c.source_offset, c.source_bytes, c.parent_id,
           (SELECT count(*) FROM (SELECT FROM bulk_item p WHERE p.parent_id = c.id LIMIT 1) AS a)
               > 0,
           CASE WHEN j.budget_pico IS NOT NULL THEN c.bound_pico END,
           j.kind::text, j.endpoint::text,
           c.job_id, c.organization_id, j.project_id, j.key_id, j.created_at
      FROM claimed c JOIN bulk_job j ON j.id = c.job_id;
END
$$;

-- Give leased items back, to be claimed after a wait. An attempt that does not count is taken back;
-- one that is forgotten never reached an engine, so that no news of its request can come. One
-- with a bound may cost that much from now on; it waits for nothing, and comes before what is
-- fresh. A part whose document has failed meanwhile is cancelled instead. Returns
-- the items given back.
DROP FUNCTION batch_jobs_return_items(
    bigint[], uuid[], bigint[], double precision[], boolean[], boolean[]
);
CREATE FUNCTION batch_jobs_return_items(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], waits_s double precision[],
    counts boolean[], forgets boolean[], bounds bigint[]
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    leased CONSTANT text := 'leased';
    returned bigint[];
    jobs uuid[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT i.id, i.request_id, a.wait_s, a.counted, a.forgotten, a.bound_pico,
               coalesce((SELECT p.state <> 'waiting' FROM bulk_item p
                          WHERE p.id = i.parent_id), false) AS is_unwanted
          FROM unnest(item_ids, organization_ids, lease_tokens, waits_s, counts, forgets, bounds)
               AS a (item_id, organization_id, lease_token, wait_s, counted, forgotten, bound_pico)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token AND i.state = leased
         ORDER BY i.id
           FOR NO KEY UPDATE OF i
    ), forgotten AS (
        DELETE FROM bulk_attempt t USING held WHERE held.forgotten AND t.request_id = held.request_id
    ), changed AS (
        UPDATE bulk_item i
           SET state = CASE WHEN held.is_unwanted THEN 'cancelled' ELSE 'queued' END,
               ended_at = CASE WHEN held.is_unwanted THEN now() END,
               lease_expires_at = NULL,
               retry_at = CASE WHEN held.bound_pico IS NULL
                               THEN now() + make_interval(secs => held.wait_s)
                               ELSE least(i.retry_at, '1999-07-01 00:00:00+00') END,
               bound_pico = coalesce(held.bound_pico, i.bound_pico),
               attempts = i.attempts - (NOT held.counted)::int,
               request_id = CASE WHEN held.forgotten THEN NULL ELSE i.request_id END
          FROM held WHERE i.id = held.id
        RETURNING i.id, i.job_id
    )
    SELECT array_agg(changed.id), array_agg(changed.job_id) INTO returned, jobs FROM changed;

    -- A claim that came to nothing is one that may still be made.
    UPDATE bulk_job j SET claims_left = j.claims_left + given.items
      FROM (SELECT locked.id, (SELECT count(*)::int FROM unnest(jobs) AS u WHERE u = locked.id)
                   AS items
              FROM (SELECT b.id FROM bulk_job b
                     WHERE b.id = ANY (jobs) AND b.claims_left IS NOT NULL
                     ORDER BY b.id FOR NO KEY UPDATE) AS locked) AS given
     WHERE j.id = given.id AND j.claims_left IS NOT NULL;
    PERFORM batch_jobs_finalize_ended(ARRAY(SELECT DISTINCT u FROM unnest(jobs) AS u ORDER BY u));
    RETURN QUERY SELECT unnest(returned);
END
$$;

-- A finish came for requests that no pipeline waits for: which of them are attempts whose answer
-- was never stored, so that nothing may be charged? Their items go back to the queue under a new
-- fencing number, so that an answer which arrives after all is refused. Other ids are not returned.
CREATE OR REPLACE FUNCTION batch_jobs_forfeit_items(lost_request_ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    forfeited uuid[];
    jobs uuid[];
BEGIN
    WITH attempt AS MATERIALIZED (
        SELECT i.id, i.request_id AS latest, i.state, asked.request_id
          FROM unnest(lost_request_ids) AS asked (request_id)
          JOIN bulk_attempt t ON t.request_id = asked.request_id
          JOIN bulk_item i ON i.id = t.item_id
         ORDER BY i.id
           FOR NO KEY UPDATE OF i
    ), lost AS (
        SELECT attempt.id, attempt.request_id, attempt.state,
               attempt.request_id IS NOT DISTINCT FROM attempt.latest AS is_latest
          FROM attempt
         WHERE attempt.request_id IS DISTINCT FROM attempt.latest
            OR attempt.state NOT IN ('answered', 'done')
    ), requeued AS (
        UPDATE bulk_item i
           SET state = 'queued', lease_token = i.lease_token + 1, lease_expires_at = NULL,
               retry_at = now()
          FROM lost WHERE i.id = lost.id AND lost.is_latest AND lost.state = 'leased'
        RETURNING i.job_id
    )
    SELECT (SELECT array_agg(request_id) FROM lost), (SELECT array_agg(job_id) FROM requeued)
      INTO forfeited, jobs;

    -- A claim that came to nothing is one that may still be made.
    UPDATE bulk_job j SET claims_left = j.claims_left + given.items
      FROM (SELECT locked.id, (SELECT count(*)::int FROM unnest(jobs) AS u WHERE u = locked.id)
                   AS items
              FROM (SELECT b.id FROM bulk_job b
                     WHERE b.id = ANY (jobs) AND b.claims_left IS NOT NULL
                     ORDER BY b.id FOR NO KEY UPDATE) AS locked) AS given
     WHERE j.id = given.id AND j.claims_left IS NOT NULL;
    RETURN QUERY SELECT unnest(forfeited);
END
$$;

ALTER FUNCTION batch_jobs_return_items OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_return_items FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_return_items TO headrace_app;
