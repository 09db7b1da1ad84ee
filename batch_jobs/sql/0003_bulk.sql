-- Row-level security, grants and composite foreign keys of bulk work's tables. Run once by migration
-- 0003: a change is a new file in a new migration.

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
