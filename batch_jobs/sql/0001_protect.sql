-- Row-level security, grants, composite foreign keys and the SECURITY DEFINER functions of
-- `batch_jobs`. Run once by migration 0001: a change is a new file in a new migration.

SELECT tenants_protect('summary_job');
SELECT tenants_protect('summary_item');

ALTER TABLE summary_job
    ADD CONSTRAINT summary_job_key_of_its_tenant
    FOREIGN KEY (organization_id, project_id, key_id)
    REFERENCES tenants_api_key (organization_id, project_id, id);
ALTER TABLE summary_item
    ADD CONSTRAINT summary_item_job_of_its_tenant
    FOREIGN KEY (organization_id, job_id) REFERENCES summary_job (organization_id, id);

GRANT SELECT, INSERT, UPDATE (items_total, items_done, items_failed, charge_pico, completed_at)
    ON summary_job TO headrace_app;
GRANT SELECT, INSERT, UPDATE (
        state, document, retry_at, lease_expires_at, attempts, request_ids, summary,
        prompt_tokens, cached_tokens, completion_tokens, charge_pico, error_code, error_message,
        ended_at
    ) ON summary_item TO headrace_app;
GRANT SELECT ON summary_job, summary_item TO headrace_housekeeper;
GRANT SELECT, UPDATE (started_at) ON summary_job TO headrace_definer;
GRANT SELECT, UPDATE (
        state, retry_at, lease_expires_at, lease_token, attempts, request_id, request_ids
    ) ON summary_item TO headrace_definer;

-- Lease up to as many items as there are new request ids, of any tenants, in turns: each tenant's
-- oldest first, then each one's second. An item is to be had when it waits in the queue or when
-- its lease ran out. Each claim raises the fencing number; an item that still has to be computed
-- starts an attempt under a request id of its own, one already answered only waits for its charge.
CREATE FUNCTION batch_jobs_claim(new_request_ids uuid[], lease_s integer)
RETURNS TABLE (
    item_id bigint, lease_token bigint, state text, attempts integer, request_id uuid,
    document text, job_id uuid, organization_id uuid, project_id uuid, key_id uuid, model text,
    job_created_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT item.id, item.organization_id
          FROM (SELECT DISTINCT organization_id FROM summary_job
                 WHERE completed_at IS NULL) AS tenant
         CROSS JOIN LATERAL (
            SELECT i.id, i.organization_id FROM summary_item i
             WHERE i.organization_id = tenant.organization_id
               AND i.state IN ('queued', 'leased', 'answered')
               AND CASE i.state WHEN 'queued' THEN i.retry_at ELSE i.lease_expires_at END <= now()
             ORDER BY i.id
             LIMIT cardinality(new_request_ids)
               FOR NO KEY UPDATE SKIP LOCKED
         ) AS item
    ), turn AS (
        SELECT id, row_number() OVER (PARTITION BY organization_id ORDER BY id) AS round FROM free
    ), seat AS (
        -- random(): where there are more tenants than seats, none is always the last.
        SELECT id, row_number() OVER (ORDER BY round, random()) AS number FROM turn
    ), claimed AS (
        UPDATE summary_item i
           SET state = CASE i.state WHEN 'answered' THEN 'answered' ELSE 'leased' END,
               lease_token = i.lease_token + 1,
               lease_expires_at = now() + make_interval(secs => lease_s),
               attempts = i.attempts + (i.state <> 'answered')::int,
               request_id = CASE i.state WHEN 'answered' THEN i.request_id
                                 ELSE new_request_ids[seat.number] END,
               request_ids = CASE i.state WHEN 'answered' THEN i.request_ids
                                  ELSE i.request_ids || new_request_ids[seat.number] END
          FROM seat
         WHERE i.id = seat.id AND seat.number <= cardinality(new_request_ids)
        RETURNING i.*
    ), started AS (
        -- Never waits for a job's row: whoever holds it has started the job.
        UPDATE summary_job SET started_at = now()
         WHERE id IN (SELECT id FROM summary_job
                       WHERE id IN (SELECT job_id FROM claimed) AND started_at IS NULL
                         FOR NO KEY UPDATE SKIP LOCKED)
    )
    SELECT c.id, c.lease_token, c.state::text, c.attempts::int, c.request_id, c.document,
           c.job_id, c.organization_id, j.project_id, j.key_id, j.model::text, j.created_at
      FROM claimed c JOIN summary_job j ON j.id = c.job_id;
END
$$;

-- A finish came for requests that no pipeline waits for: which of them are attempts whose answer
-- was never stored, so that nothing may be charged? Their items go back to the queue under a new
-- fencing number, so that an answer which arrives after all is refused. Other ids are not returned.
CREATE FUNCTION batch_jobs_forfeit(lost_request_ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH attempt AS (
        SELECT i.id, i.request_ids, i.request_id AS latest, i.state
          FROM summary_item i
         WHERE i.request_ids && lost_request_ids
         ORDER BY i.id
           FOR NO KEY UPDATE
    ), lost AS (
        SELECT attempt.id, asked.request_id, asked.request_id = attempt.latest AS is_latest
          FROM attempt
          JOIN unnest(lost_request_ids) AS asked (request_id)
            ON asked.request_id = ANY (attempt.request_ids)
         WHERE asked.request_id <> attempt.latest OR attempt.state NOT IN ('answered', 'done')
    ), requeued AS (
        UPDATE summary_item i
           SET state = 'queued', lease_token = i.lease_token + 1, lease_expires_at = NULL,
               retry_at = now()
          FROM lost WHERE i.id = lost.id AND lost.is_latest AND i.state = 'leased'
    )
    SELECT lost.request_id FROM lost;
END
$$;

ALTER FUNCTION batch_jobs_claim OWNER TO headrace_definer;
ALTER FUNCTION batch_jobs_forfeit OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_claim, batch_jobs_forfeit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_claim, batch_jobs_forfeit TO headrace_app;
