-- What pumps do with items, in lists: claim, store answers, end, give back, renew, forfeit. Run once
-- by migration 0004: a change is a new file in a new migration.
--
-- Each item comes with its tenant and its fencing number; one that does not match is passed over.
-- Whoever waits for rows locks items by ascending id, then jobs by ascending id; the claim waits for
-- nobody.
--
-- Tables grow from nothing to millions of rows while a session keeps its plans. So these functions
-- are planned once, and by settings and spelling only in the way that is right for millions: sorts
-- are off, so that ORDER BY names the index to read (of a job's items, the queue and not all); what
-- is to be read first is materialized; and a state that must not choose an index is a variable.

-- Dead entries of the queue's index are what a claim has to pass by.
ALTER TABLE bulk_item SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- Lease up to as many items as there are new request ids, of any tenants and jobs, in turns: a
-- tenant's first job's first item, the next tenant's, ..., then each one's second. An item is to be
-- had when it is queued, or when its lease ran out. Each claim raises the fencing number; an item
-- that still has to be computed starts an attempt under a request id of its own, one already
-- answered only waits for its charge, whatever became of its job.
--
-- Of more jobs than `jobs_max` some are drawn by lot, tenants in turns, so that none is always
-- last and no claim has to write to a job. A job with a budget or a number of claims left is
-- locked: two claimers would both find room in what is left. One whose next item does not fit its
-- budget while none of its items is under way is paused.
CREATE FUNCTION batch_jobs_claim_items(
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
                 WHERE i.job_id = job.id AND i.state IN ('leased', 'answered')
                   AND i.lease_expires_at > '-infinity'
                 ORDER BY i.lease_expires_at LIMIT 1) IS NULL
    )
    SELECT c.id, c.lease_token, c.state::text, c.attempts::int, c.request_id, c.custom_id::text,
           c.line, c.source_id, c.source_offset, c.source_bytes, c.parent_id,
           (SELECT count(*) FROM (SELECT FROM bulk_item p WHERE p.parent_id = c.id LIMIT 1) AS a)
               > 0,
           c.bound_pico, j.kind::text, j.endpoint::text,
           c.job_id, c.organization_id, j.project_id, j.key_id, j.created_at
      FROM claimed c JOIN bulk_job j ON j.id = c.job_id;
END
$$;

-- Keep complete answers, before they are charged; returns the items whose lease was still held.
CREATE FUNCTION batch_jobs_store_answers(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], answers text[],
    prompts integer[], cacheds integer[], completions integer[]
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    leased CONSTANT text := 'leased';
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT i.id, a.answer, a.prompt, a.cached, a.completion
          FROM unnest(item_ids, organization_ids, lease_tokens, answers, prompts, cacheds,
                      completions)
               AS a (item_id, organization_id, lease_token, answer, prompt, cached, completion)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token AND i.state = leased
         ORDER BY i.id
           FOR NO KEY UPDATE OF i
    )
    UPDATE bulk_item i
       SET state = 'answered', status_code = 200, answer = held.answer,
           prompt_tokens = held.prompt, cached_tokens = held.cached,
           completion_tokens = held.completion
      FROM held WHERE i.id = held.id
    RETURNING i.id;
END
$$;

-- A job in progress of whose items none is left to come is finalized.
CREATE FUNCTION batch_jobs_finalize_ended(job_ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
    UPDATE bulk_job j SET state = 'finalizing', finalizing_at = now()
     WHERE j.id = ANY (job_ids) AND j.state = 'in_progress'
       AND j.items_completed + j.items_failed >= j.items_total
       AND (SELECT true FROM bulk_item i
             WHERE i.job_id = j.id AND i.state = 'queued'
             ORDER BY i.job_id, i.retry_at, i.place, i.id LIMIT 1) IS NULL
       AND (SELECT true FROM bulk_item i
             WHERE i.job_id = j.id AND i.state IN ('leased', 'answered')
               AND i.lease_expires_at > '-infinity'
             ORDER BY i.lease_expires_at LIMIT 1) IS NULL
    RETURNING j.id
$$;

-- End items: answered ones are done, with what their request was charged; leased ones with an error
-- code have failed. What hangs on them ends with them: the document whose part failed, with its
-- other parts, and those that are the same as one that ended. A document whose last part is done
-- is queued. Returns the items that ended, and whether that was the end of their job's last one.
CREATE FUNCTION batch_jobs_end_items(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], charges bigint[],
    status_codes smallint[], error_codes text[], error_messages text[]
) RETURNS TABLE (item_id bigint, job_id uuid, finalizing boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    hanging bigint[];
    ended jsonb;
    jobs uuid[];
    finalized uuid[];
BEGIN
    -- Who belongs to whom never changes, so it can be read before anything is locked.
    SELECT array_agg(DISTINCT tied.id) INTO hanging FROM (
        WITH RECURSIVE asked AS MATERIALIZED (
            SELECT i.id, i.parent_id, i.copies, a.error_code IS NOT NULL AS fails
              FROM unnest(item_ids, organization_ids, error_codes)
                   AS a (item_id, organization_id, error_code)
              JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
        ), above (id, parent_id, copies, fails) AS (
            SELECT * FROM asked
            UNION
            SELECT p.id, p.parent_id, p.copies, above.fails
              FROM above JOIN bulk_item p ON p.id = above.parent_id
        ), below (id) AS (
            SELECT id FROM above WHERE fails AND parent_id IS NULL
            UNION
            SELECT c.id FROM below JOIN bulk_item c ON c.parent_id = below.id
        )
        SELECT id FROM above
        UNION ALL
        SELECT id FROM below
        UNION ALL
        SELECT c.id FROM (SELECT DISTINCT id FROM above WHERE copies > 0) AS shared
          JOIN bulk_item c ON c.same_as_id = shared.id
    ) AS tied;
    PERFORM FROM bulk_item i WHERE i.id = ANY (hanging) ORDER BY i.id FOR NO KEY UPDATE;

    WITH RECURSIVE held AS MATERIALIZED (
        SELECT i.id, i.job_id, i.parent_id, i.custom_id, i.copies, i.prompt_tokens,
               i.cached_tokens, i.completion_tokens,
               a.charge, a.status_code, a.error_code, a.error_message
          FROM unnest(item_ids, organization_ids, lease_tokens, charges, status_codes,
                      error_codes, error_messages)
               AS a (item_id, organization_id, lease_token, charge, status_code, error_code,
                     error_message)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token
           AND i.state = CASE WHEN a.error_code IS NULL THEN 'answered' ELSE 'leased' END
    ), above (id, parent_id, copies, custom_id, status_code, error_code, error_message) AS (
        SELECT p.id, p.parent_id, p.copies, p.custom_id, held.status_code, held.error_code,
               held.error_message
          FROM held JOIN bulk_item p ON p.id = held.parent_id
         WHERE held.error_code IS NOT NULL AND p.state = 'waiting'
        UNION ALL
        SELECT p.id, p.parent_id, p.copies, p.custom_id, above.status_code, above.error_code,
               above.error_message
          FROM above JOIN bulk_item p ON p.id = above.parent_id
         WHERE p.state = 'waiting'
    ), felled AS MATERIALIZED (
        SELECT DISTINCT ON (id) * FROM above ORDER BY id, error_code, error_message
    ), below (id) AS (
        SELECT c.id FROM felled JOIN bulk_item c ON c.parent_id = felled.id
         WHERE felled.parent_id IS NULL
        UNION ALL
        SELECT c.id FROM below JOIN bulk_item c ON c.parent_id = below.id
    ), own AS MATERIALIZED (
        SELECT id, custom_id, copies, status_code, error_code, error_message, charge FROM held
        UNION ALL
        SELECT id, custom_id, copies, status_code, error_code, error_message, 0 FROM felled
    ), ends AS MATERIALIZED (
        SELECT id, status_code, charge, error_code, error_message,
               CASE WHEN error_code IS NULL THEN 'done' ELSE 'failed' END AS state
          FROM own
        UNION ALL
        SELECT c.id, own.status_code, 0, own.error_code, own.error_message,
               CASE WHEN own.error_code IS NULL THEN 'done' ELSE 'failed' END
          FROM own JOIN bulk_item c ON c.same_as_id = own.id
         WHERE own.copies > 0 AND c.state = 'waiting'
        UNION ALL
        SELECT c.id, NULL, 0, NULL, NULL, 'cancelled'
          FROM (SELECT DISTINCT id FROM below) AS b JOIN bulk_item c ON c.id = b.id
         WHERE c.state IN ('waiting', 'queued')
           AND NOT EXISTS (SELECT FROM felled WHERE felled.id = c.id)
    ), changed AS (
        UPDATE bulk_item i
           SET state = ends.state, ended_at = now(), lease_expires_at = NULL,
               charge_pico = ends.charge, error_code = ends.error_code,
               error_message = ends.error_message,
               status_code = coalesce(nullif(ends.status_code, 0), i.status_code)
          FROM ends WHERE i.id = ends.id
        RETURNING i.id, i.job_id, i.custom_id, i.state, i.charge_pico, i.parent_id,
                  i.prompt_tokens, i.cached_tokens, i.completion_tokens
    )
    SELECT jsonb_agg(to_jsonb(changed)) INTO ended FROM changed;
    IF ended IS NULL THEN
        RETURN;
    END IF;

    UPDATE bulk_item p
       SET parts_left = p.parts_left - ready.parts,
           state = CASE WHEN p.parts_left = ready.parts THEN 'queued' ELSE 'waiting' END,
           -- Before what is still fresh: its parts' answers are of no use until it is done.
           retry_at = '1999-07-01 00:00:00+00'
      FROM (SELECT e.parent_id, count(*)::int AS parts
              FROM jsonb_to_recordset(ended) AS e (parent_id bigint, state text)
             WHERE e.state = 'done' AND e.parent_id IS NOT NULL
             GROUP BY e.parent_id) AS ready
     WHERE p.id = ready.parent_id AND p.state = 'waiting';

    SELECT array_agg(locked.id) INTO jobs FROM (
        SELECT j.id FROM bulk_job j
         WHERE j.id IN (SELECT e.job_id FROM jsonb_to_recordset(ended) AS e (job_id uuid))
         ORDER BY j.id FOR NO KEY UPDATE
    ) AS locked;
    WITH sums AS (
        SELECT e.job_id,
               count(e.custom_id) FILTER (WHERE e.state = 'done') AS completed,
               count(e.custom_id) FILTER (WHERE e.state = 'failed') AS failed,
               sum(e.prompt_tokens) FILTER (WHERE e.state = 'done') AS prompt,
               sum(e.cached_tokens) FILTER (WHERE e.state = 'done') AS cached,
               sum(e.completion_tokens) FILTER (WHERE e.state = 'done') AS completion,
               sum(e.charge_pico) AS charge
          FROM jsonb_to_recordset(ended)
               AS e (job_id uuid, custom_id text, state text, prompt_tokens bigint,
                     cached_tokens bigint, completion_tokens bigint, charge_pico bigint)
         GROUP BY e.job_id
    ), counted AS (
        UPDATE bulk_job j
           SET items_completed = j.items_completed + sums.completed,
               items_failed = j.items_failed + sums.failed,
               prompt_tokens = j.prompt_tokens + coalesce(sums.prompt, 0),
               cached_tokens = j.cached_tokens + coalesce(sums.cached, 0),
               completion_tokens = j.completion_tokens + coalesce(sums.completion, 0),
               charge_pico = j.charge_pico + sums.charge
          FROM sums WHERE j.id = sums.job_id
        RETURNING j.id, j.organization_id
    )
    INSERT INTO bulk_progress (
        organization_id, job_id, bucket_at, items, prompt_tokens, completion_tokens, charge_pico
    )
    SELECT counted.organization_id, counted.id,
           date_bin('10 seconds', now(), '2000-01-01 00:00:00+00'),
           sums.completed + sums.failed, coalesce(sums.prompt, 0), coalesce(sums.completion, 0),
           sums.charge
      FROM counted JOIN sums ON sums.job_id = counted.id
     ORDER BY counted.id
        ON CONFLICT (job_id, bucket_at) DO UPDATE
       SET items = bulk_progress.items + excluded.items,
           prompt_tokens = bulk_progress.prompt_tokens + excluded.prompt_tokens,
           completion_tokens = bulk_progress.completion_tokens + excluded.completion_tokens,
           charge_pico = bulk_progress.charge_pico + excluded.charge_pico;

    SELECT array_agg(f) INTO finalized FROM batch_jobs_finalize_ended(jobs) AS f;
    RETURN QUERY
        SELECT e.id, e.job_id, coalesce(e.job_id = ANY (finalized), false)
          FROM jsonb_to_recordset(ended) AS e (id bigint, job_id uuid);
END
$$;

-- Give leased items back, to be claimed after a wait. An attempt that does not count is taken back;
-- one that is forgotten never reached an engine, so that no news of its request can come. A part
-- whose document has failed meanwhile is cancelled instead. Returns the items given back.
CREATE FUNCTION batch_jobs_return_items(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], waits_s double precision[],
    counts boolean[], forgets boolean[]
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
        SELECT i.id, i.request_id, a.wait_s, a.counted, a.forgotten,
               coalesce((SELECT p.state <> 'waiting' FROM bulk_item p
                          WHERE p.id = i.parent_id), false) AS is_unwanted
          FROM unnest(item_ids, organization_ids, lease_tokens, waits_s, counts, forgets)
               AS a (item_id, organization_id, lease_token, wait_s, counted, forgotten)
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
               retry_at = now() + make_interval(secs => held.wait_s),
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

-- Let the leases that are still held run for `lease_s` more seconds; returns their items. One whose
-- job was cancelled or has expired is renewed for `grace_s` from then on, so that what is nearly
-- done is done, and charged; a part of a document that has failed is not renewed.
CREATE FUNCTION batch_jobs_renew_items(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], lease_s integer,
    grace_s integer
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    held_states CONSTANT text[] := ARRAY['leased', 'answered'];
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT i.id, i.job_id, i.parent_id, i.state
          FROM unnest(item_ids, organization_ids, lease_tokens)
               AS a (item_id, organization_id, lease_token)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token AND i.state = ANY (held_states)
         ORDER BY i.id
           FOR NO KEY UPDATE OF i
    ), wanted AS MATERIALIZED (
        SELECT held.id FROM held JOIN bulk_job j ON j.id = held.job_id
         WHERE held.state = 'answered'
            OR (coalesce(j.cancelling_at, j.expired_at, 'infinity')
                    > now() - make_interval(secs => grace_s)
                AND coalesce((SELECT p.state = 'waiting' FROM bulk_item p
                               WHERE p.id = held.parent_id), true))
    )
    UPDATE bulk_item i SET lease_expires_at = now() + make_interval(secs => lease_s)
      FROM wanted WHERE i.id = wanted.id
    RETURNING i.id;
END
$$;

-- Nothing of these jobs is claimed for a while; those with a reason are paused until their owner
-- resumes them.
CREATE FUNCTION batch_jobs_hold_back(
    job_ids uuid[], organization_ids uuid[], waits_s double precision[], reasons text[]
) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH held AS MATERIALIZED (
        SELECT j.id, a.wait_s, a.reason
          FROM unnest(job_ids, organization_ids, waits_s, reasons)
               AS a (job_id, organization_id, wait_s, reason)
          JOIN bulk_job j ON j.id = a.job_id AND j.organization_id = a.organization_id
           AND j.state = 'in_progress'
         ORDER BY j.id
           FOR NO KEY UPDATE OF j
    )
    UPDATE bulk_job j
       SET retry_at = greatest(j.retry_at, now() + make_interval(secs => held.wait_s)),
           state = CASE held.reason WHEN '' THEN j.state ELSE 'paused' END,
           pause_reason = held.reason,
           paused_at = CASE held.reason WHEN '' THEN j.paused_at ELSE now() END
      FROM held WHERE j.id = held.id
    RETURNING j.id
$$;

-- A finish came for requests that no pipeline waits for: which of them are attempts whose answer
-- was never stored, so that nothing may be charged? Their items go back to the queue under a new
-- fencing number, so that an answer which arrives after all is refused. Other ids are not returned.
CREATE FUNCTION batch_jobs_forfeit_items(lost_request_ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
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
    )
    SELECT lost.request_id FROM lost;
END
$$;

ALTER FUNCTION batch_jobs_claim_items OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_store_answers OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_finalize_ended OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_end_items OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_return_items OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_renew_items OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_hold_back OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_forfeit_items OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_claim_items, batch_jobs_store_answers,
    batch_jobs_finalize_ended, batch_jobs_end_items, batch_jobs_return_items,
    batch_jobs_renew_items, batch_jobs_hold_back, batch_jobs_forfeit_items FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_claim_items, batch_jobs_store_answers, batch_jobs_end_items,
    batch_jobs_return_items, batch_jobs_renew_items, batch_jobs_hold_back,
    batch_jobs_forfeit_items TO headrace_app;
