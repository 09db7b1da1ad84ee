-- Row-level security and grants of what is kept for a while. Run by migration 0005.

SELECT tenants_protect('tenants_idempotent_request');
SELECT tenants_protect('tenants_exchange');
SELECT tenants_protect('tenants_export');
SELECT tenants_protect('tenants_export_part');
SELECT tenants_protect('tenants_erasure');

ALTER TABLE tenants_export_part
    ADD CONSTRAINT tenants_part_of_its_export FOREIGN KEY (organization_id, export_id)
        REFERENCES tenants_export (organization_id, id) ON DELETE CASCADE;
-- Sealed and zipped already: trying to compress it again is time lost.
ALTER TABLE tenants_export_part ALTER COLUMN content SET STORAGE EXTERNAL;
ALTER TABLE tenants_idempotent_request ALTER COLUMN answer_sealed SET STORAGE EXTERNAL;

GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_idempotent_request TO headrace_app;
-- Kept prompts are written and read; forgetting them is the sweeper's.
GRANT SELECT, INSERT ON tenants_exchange TO headrace_app;
GRANT SELECT, INSERT, UPDATE (state, ready_at, expires_at, size_bytes) ON tenants_export
    TO headrace_app;
GRANT SELECT, INSERT ON tenants_export_part TO headrace_app;
GRANT SELECT, INSERT,
    UPDATE (asked_by, asked_at, token_hash, token_expires_at, confirmed_at)
    ON tenants_erasure TO headrace_app;

GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_idempotent_request, tenants_exchange,
    tenants_export, tenants_export_part, tenants_erasure TO headrace_housekeeper;

-- What is forgotten stays forgotten: nobody takes a confirmed erasure back.
CREATE FUNCTION tenants_erasure_is_for_good() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a confirmed erasure goes on' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_erasure_is_for_good BEFORE UPDATE ON tenants_erasure
    FOR EACH ROW WHEN (OLD.confirmed_at IS NOT NULL
                       AND (NEW.confirmed_at IS DISTINCT FROM OLD.confirmed_at
                            OR OLD.erased_at IS NOT NULL))
    EXECUTE FUNCTION tenants_erasure_is_for_good();
