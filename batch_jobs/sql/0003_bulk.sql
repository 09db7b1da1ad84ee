-- Row-level security, grants, composite foreign keys and the claim of bulk work's tables. Run once
-- by migration 0003: a change is a new file in a new migration.

SELECT tenants_protect('bulk_file');
SELECT tenants_protect('bulk_job');
SELECT tenants_protect('bulk_summary_plan');
SELECT tenants_protect('bulk_progress');
SELECT tenants_protect('bulk_item');
SELECT tenants_protect('bulk_attempt');

ALTER TABLE bulk_file
    ADD CONSTRAINT bulk_file_key_of_its_tenant
    FOREIGN KEY (organization_id, project_id, key_id)
    REFERENCES tenants_api_key (organization_id, project_id, id);
ALTER TABLE bulk_job
    ADD CONSTRAINT bulk_job_key_of_its_tenant
    FOREIGN KEY (organization_id, project_id, key_id)
    REFERENCES tenants_api_key (organization_id, project_id, id),
    ADD CONSTRAINT bulk_job_input_of_its_tenant
    FOREIGN KEY (organization_id, input_file_id) REFERENCES bulk_file (organization_id, id),
    ADD CONSTRAINT bulk_job_output_of_its_tenant
    FOREIGN KEY (organization_id, output_file_id) REFERENCES bulk_file (organization_id, id),
    ADD CONSTRAINT bulk_job_errors_of_its_tenant
    FOREIGN KEY (organization_id, error_file_id) REFERENCES bulk_file (organization_id, id);
ALTER TABLE bulk_summary_plan
    ADD CONSTRAINT bulk_summary_plan_job_of_its_tenant
    FOREIGN KEY (organization_id, job_id) REFERENCES bulk_job (organization_id, id);
ALTER TABLE bulk_progress
    ADD CONSTRAINT bulk_progress_job_of_its_tenant
    FOREIGN KEY (organization_id, job_id) REFERENCES bulk_job (organization_id, id);
ALTER TABLE bulk_item
    ADD CONSTRAINT bulk_item_job_of_its_tenant
    FOREIGN KEY (organization_id, job_id) REFERENCES bulk_job (organization_id, id);

-- The web makes, reads and steers jobs and files; items are moved by the functions below and in
-- 0004, or by the housekeeper, who validates, finalizes, expires and forgets.
GRANT SELECT, INSERT, UPDATE (expires_at, deleted_at) ON bulk_file TO headrace_app;
GRANT SELECT, INSERT, UPDATE (
        state, budget_pico, retry_at, claims_left, pause_reason, deadline_at, in_progress_at,
        cancelling_at, paused_at, items_failed, metadata
    ) ON bulk_job TO headrace_app;
GRANT SELECT, INSERT, UPDATE (options, estimate, starts_itself) ON bulk_summary_plan
    TO headrace_app;
GRANT SELECT ON bulk_progress TO headrace_app;
GRANT SELECT ON bulk_item, bulk_attempt TO headrace_app;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON bulk_file, bulk_job, bulk_summary_plan, bulk_progress, bulk_item, bulk_attempt
    TO headrace_housekeeper;
GRANT USAGE ON SEQUENCE bulk_item_id_seq, bulk_progress_id_seq
    TO headrace_housekeeper, headrace_definer;
GRANT SELECT ON bulk_file TO headrace_definer;
GRANT SELECT, UPDATE ON bulk_job, bulk_item TO headrace_definer;
GRANT SELECT, INSERT, UPDATE ON bulk_progress TO headrace_definer;
GRANT SELECT, INSERT, DELETE ON bulk_attempt TO headrace_definer;

-- Lease up to as many items as there are new request ids, of any tenants and jobs, in turns: a
-- tenant's first job's first item, the next tenant's, ..., then each one's second. An item is to be
-- had when it is queued, or when its lease ran out. Each claim raises the fencing number; an item
-- that still has to be computed starts an attempt under a request id of its own, one already
-- answered only waits for its charge.
--
-- Of more jobs than `jobs_max` some are drawn by lot, tenants in turns, so that none is always
-- last and no claim has to write to a job. A job with a budget or a number of claims left is
-- locked: two claimers would both find room in what is left.
CREATE FUNCTION batch_jobs_claim_items(new_request_ids uuid[], lease_s integer, jobs_max integer)
RETURNS TABLE (
    item_id bigint, lease_token bigint, state text, attempts integer, request_id uuid,
    custom_id text, line integer, source_id uuid, source_offset bigint, source_bytes integer,
    parent_id bigint, parts boolean, bound_pico bigint, kind text, endpoint text,
    job_id uuid, organization_id uuid, project_id uuid, key_id uuid, job_created_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    seats CONSTANT integer := cardinality(new_request_ids);
    drawn uuid[];
    bounded uuid[];
BEGIN
    SELECT array_agg(id) INTO drawn FROM (
        SELECT id FROM (
            SELECT j.id, row_number() OVER (PARTITION BY j.organization_id ORDER BY random()) AS turn
              FROM bulk_job j
             WHERE j.state = 'in_progress' AND j.retry_at <= now()
               AND (j.claims_left IS NULL OR j.claims_left > 0)
        ) AS running
        ORDER BY turn, random() LIMIT jobs_max
    ) AS lot;
    SELECT array_agg(id) INTO bounded FROM (
        SELECT j.id FROM bulk_job j
         WHERE j.id = ANY (drawn) AND (j.budget_pico IS NOT NULL OR j.claims_left IS NOT NULL)
           FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked;

    RETURN QUERY
    WITH job AS (
        SELECT j.id, j.organization_id, coalesce(least(j.claims_left, seats), seats) AS seats_max,
               j.budget_pico - j.charge_pico - (
                   SELECT coalesce(sum(i.bound_pico), 0) FROM bulk_item i
                    WHERE i.job_id = j.id AND i.state IN ('leased', 'answered')
                      AND i.lease_expires_at > '-infinity' AND j.budget_pico IS NOT NULL
               ) AS budget_left_pico
          FROM bulk_job j
         WHERE j.id = ANY (drawn)
           AND (j.id = ANY (bounded) OR (j.budget_pico IS NULL AND j.claims_left IS NULL))
    ), queued AS (
        SELECT item.id, item.bound_pico, job.organization_id, job.id AS job_id,
               job.budget_left_pico, item.turn
          FROM job
         CROSS JOIN LATERAL (
            SELECT i.id, i.bound_pico, row_number() OVER (ORDER BY i.retry_at, i.place, i.id) AS turn
              FROM (SELECT id, bound_pico, retry_at, place FROM bulk_item
                     WHERE job_id = job.id AND state = 'queued' AND retry_at <= now()
                     ORDER BY retry_at, place, id
                     LIMIT job.seats_max
                       FOR NO KEY UPDATE SKIP LOCKED) AS i
         ) AS item
    ), lapsed AS (
        SELECT i.id, i.organization_id, 0::bigint AS turn FROM bulk_item i
         WHERE i.state IN ('leased', 'answered') AND i.lease_expires_at <= now()
         ORDER BY i.lease_expires_at
         LIMIT seats
           FOR NO KEY UPDATE SKIP LOCKED
    ), free AS (
        SELECT id, organization_id, turn FROM lapsed
        UNION ALL
        SELECT id, organization_id, turn FROM (
            SELECT *, sum(bound_pico) OVER (PARTITION BY job_id ORDER BY turn) AS taken_pico
              FROM queued
        ) AS q
        WHERE budget_left_pico IS NULL OR taken_pico <= budget_left_pico
    ), round AS (
        SELECT id, row_number() OVER (PARTITION BY organization_id ORDER BY turn, id) AS number
          FROM free
    ), seat AS (
        SELECT id, row_number() OVER (ORDER BY number, random()) AS number FROM round
    ), claimed AS (
        UPDATE bulk_item i
           SET state = CASE i.state WHEN 'answered' THEN 'answered' ELSE 'leased' END,
               lease_token = i.lease_token + 1,
               lease_expires_at = now() + make_interval(secs => lease_s),
               attempts = i.attempts + (i.state <> 'answered')::int,
               request_id = CASE i.state WHEN 'answered' THEN i.request_id
                                 ELSE new_request_ids[seat.number] END
          FROM seat
         WHERE i.id = seat.id AND seat.number <= seats
        RETURNING i.*
    ), attempted AS (
        INSERT INTO bulk_attempt (request_id, organization_id, item_id)
        SELECT c.request_id, c.organization_id, c.id FROM claimed c WHERE c.state = 'leased'
    ), counted AS (
        UPDATE bulk_job j
           SET claims_left = greatest(0, j.claims_left - taken.items)
          FROM (SELECT job_id, count(*)::int AS items FROM claimed GROUP BY job_id) AS taken
         WHERE j.id = taken.job_id AND j.claims_left IS NOT NULL
    )
    SELECT c.id, c.lease_token, c.state::text, c.attempts::int, c.request_id, c.custom_id::text,
           c.line, c.source_id, c.source_offset, c.source_bytes, c.parent_id,
           EXISTS (SELECT FROM bulk_item p WHERE p.parent_id = c.id),
           c.bound_pico, j.kind::text, j.endpoint::text,
           c.job_id, c.organization_id, j.project_id, j.key_id, j.created_at
      FROM claimed c JOIN bulk_job j ON j.id = c.job_id;
END
$$;

ALTER FUNCTION batch_jobs_claim_items OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_claim_items FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_claim_items TO headrace_app;
