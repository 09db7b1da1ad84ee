-- The end of items whose answer a hundred thousand others share. Run once by migration 0010: a
-- change is a new file in a new migration. How these functions are planned is said in 0004.

-- End items: answered ones are done, with what their request was charged; leased ones with an error
-- code have failed. What hangs on them ends with them: the document whose part failed, with its
-- other parts, and those that are the same as one that ended. A document whose last part is done
-- is queued. Returns the items that ended, and whether that was the end of their job's last one.
--
-- No more than `copies_max` items that share another's answer end at a time. Whatever has more ends
-- after all of them: until then it is held as before and returned as crowded, to be ended again.
-- Who holds it may be killed in between: the next holder finds fewer left.
DROP FUNCTION batch_jobs_end_items(
    bigint[], uuid[], bigint[], bigint[], smallint[], text[], text[]
);
CREATE FUNCTION batch_jobs_end_items(
    item_ids bigint[], organization_ids uuid[], lease_tokens bigint[], charges bigint[],
    status_codes smallint[], error_codes text[], error_messages text[], copies_max integer
) RETURNS TABLE (item_id bigint, job_id uuid, finalizing boolean, is_crowded boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    hanging bigint[];
    shared bigint[];
    leader bigint;
    waiting_copies bigint[];
    copied bigint[] := '{}';
    crowded bigint[] := '{}';
    ended jsonb;
    jobs uuid[];
    finalized uuid[];
BEGIN
    -- Who belongs to whom never changes, so it can be read before anything is locked.
    WITH RECURSIVE asked AS MATERIALIZED (
        SELECT i.id, i.parent_id, i.copies, a.error_code IS NOT NULL AS fails, true AS ends
          FROM unnest(item_ids, organization_ids, lease_tokens, error_codes)
               AS a (item_id, organization_id, lease_token, error_code)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token
           AND i.state = CASE WHEN a.error_code IS NULL THEN 'answered' ELSE 'leased' END
    ), above (id, parent_id, copies, fails, ends) AS (
        SELECT * FROM asked
        UNION
        SELECT p.id, p.parent_id, p.copies, above.fails, above.fails
          FROM above JOIN bulk_item p ON p.id = above.parent_id
    ), below (id) AS (
        SELECT id FROM above WHERE fails AND parent_id IS NULL
        UNION
        SELECT c.id FROM below JOIN bulk_item c ON c.parent_id = below.id
    ), tied AS (
        SELECT id FROM above
        UNION
        SELECT id FROM below
    )
    SELECT (SELECT array_agg(id) FROM tied),
           (SELECT array_agg(id ORDER BY copies, id)
              FROM (SELECT DISTINCT id, copies FROM above WHERE ends AND copies > 0) AS leaders)
      INTO hanging, shared;

    FOREACH leader IN ARRAY coalesce(shared, '{}') LOOP
        -- Without an order there is one index to read. Each page passes by what the last ones left.
        waiting_copies := ARRAY(
            SELECT id FROM bulk_item WHERE same_as_id = leader AND state = 'waiting'
             LIMIT copies_max - cardinality(copied) + 1);
        IF cardinality(waiting_copies) > copies_max - cardinality(copied) THEN
            crowded := crowded || leader;
            waiting_copies := trim_array(waiting_copies, 1);
        END IF;
        copied := copied || waiting_copies;
    END LOOP;
    PERFORM FROM bulk_item i WHERE i.id = ANY (hanging || copied)
      ORDER BY i.id FOR NO KEY UPDATE;

    WITH RECURSIVE asked AS MATERIALIZED (
        SELECT i.id, i.job_id, i.parent_id, i.custom_id, i.copies,
               a.charge, a.status_code, a.error_code, a.error_message
          FROM unnest(item_ids, organization_ids, lease_tokens, charges, status_codes,
                      error_codes, error_messages)
               AS a (item_id, organization_id, lease_token, charge, status_code, error_code,
                     error_message)
          JOIN bulk_item i ON i.id = a.item_id AND i.organization_id = a.organization_id
           AND i.lease_token = a.lease_token
           AND i.state = CASE WHEN a.error_code IS NULL THEN 'answered' ELSE 'leased' END
    ), above (item_id, id, parent_id, status_code, error_code, error_message) AS (
        SELECT asked.id, p.id, p.parent_id, asked.status_code, asked.error_code,
               asked.error_message
          FROM asked JOIN bulk_item p ON p.id = asked.parent_id
         WHERE asked.error_code IS NOT NULL AND p.state = 'waiting'
        UNION ALL
        SELECT above.item_id, p.id, p.parent_id, above.status_code, above.error_code,
               above.error_message
          FROM above JOIN bulk_item p ON p.id = above.parent_id
         WHERE p.state = 'waiting'
    ), postponed AS MATERIALIZED (
        SELECT id FROM asked WHERE id = ANY (crowded)
        UNION
        SELECT item_id FROM above WHERE id = ANY (crowded)
    ), felled AS MATERIALIZED (
        SELECT DISTINCT ON (id) *, item_id IN (SELECT id FROM postponed) AS is_postponed
          FROM above ORDER BY id, error_code, error_message
    ), below (id) AS (
        SELECT c.id FROM felled JOIN bulk_item c ON c.parent_id = felled.id
         WHERE felled.parent_id IS NULL AND NOT felled.is_postponed
        UNION ALL
        SELECT c.id FROM below JOIN bulk_item c ON c.parent_id = below.id
    ), own AS MATERIALIZED (
        SELECT id, status_code, error_code, error_message, charge,
               id IN (SELECT id FROM postponed) AS is_postponed
          FROM asked
        UNION ALL
        SELECT id, status_code, error_code, error_message, 0, is_postponed FROM felled
    ), ends AS MATERIALIZED (
        SELECT id, status_code, charge, error_code, error_message,
               CASE WHEN error_code IS NULL THEN 'done' ELSE 'failed' END AS state
          FROM own WHERE NOT is_postponed
        UNION ALL
        SELECT c.id, own.status_code, 0, own.error_code, own.error_message,
               CASE WHEN own.error_code IS NULL THEN 'done' ELSE 'failed' END
          FROM unnest(copied) AS u (id)
          JOIN bulk_item c ON c.id = u.id AND c.state = 'waiting'
          JOIN own ON own.id = c.same_as_id
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
    SELECT (SELECT jsonb_agg(to_jsonb(changed)) FROM changed),
           (SELECT array_agg(id) FROM postponed)
      INTO ended, crowded;
    RETURN QUERY SELECT u, NULL::uuid, false, true FROM unnest(crowded) AS u;
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
        SELECT e.id, e.job_id, coalesce(e.job_id = ANY (finalized), false), false
          FROM jsonb_to_recordset(ended) AS e (id bigint, job_id uuid);
END
$$;

ALTER FUNCTION batch_jobs_end_items OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_end_items FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_end_items TO headrace_app;
