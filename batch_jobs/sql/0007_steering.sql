-- What the web's role needs to steer summarisation jobs, and the choice of a preview's documents.
-- Run once by migration 0007: a change is a new file in a new migration.

GRANT UPDATE (
        key_id, cursor, tended_until, completed_at, expired_at, cancelled_at, finalizing_at,
        expires_at, results_deleted_at
    ) ON bulk_job TO headrace_app;
GRANT UPDATE (warned_at) ON bulk_summary_plan TO headrace_app;

CREATE INDEX bulk_job_forgetting ON bulk_job (id) WHERE cursor @> '{"forget": true}';
CREATE INDEX bulk_job_results_kept ON bulk_job (id)
 WHERE kind = 'summary' AND results_deleted_at IS NULL
   AND state IN ('completed', 'failed', 'expired', 'cancelled');

-- Sends up to `documents_max` whole documents of a job to the front of its queue, parts of none;
-- returns how many. Of the tenant whose scope is open.
CREATE FUNCTION batch_jobs_preview(of_job uuid, documents_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH first AS (
        SELECT id FROM bulk_item
         WHERE job_id = of_job AND state = 'queued' AND custom_id IS NOT NULL
           AND organization_id =
               nullif(current_setting('headrace.organization_id', true), '')::uuid
         ORDER BY retry_at, place, id
         LIMIT documents_max
           FOR NO KEY UPDATE
    ), moved AS (
        UPDATE bulk_item i SET retry_at = '1999-01-01 00:00:00+00'
          FROM first WHERE i.id = first.id
        RETURNING i.id
    )
    SELECT count(*) FROM moved
$$;

ALTER FUNCTION batch_jobs_preview OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION batch_jobs_preview FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batch_jobs_preview TO headrace_app;
