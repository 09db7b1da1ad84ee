-- The audit log: append-only, one hash chain for each organization. Run once by migration 0003: a
-- change is a new file in a new migration.
--
-- An entry's hash is sha256(hash of the entry before || its fields as netstrings); the first one
-- follows 32 zero bytes. The head row holds the last sequence and hash, so that a tail cut off
-- shows too, and its lock makes the entries of an organization queue: add one as the last thing of
-- a transaction, after every other lock.

SELECT tenants_protect('tenants_audit_head');
SELECT tenants_protect('tenants_audit_log');

GRANT SELECT ON tenants_audit_head, tenants_audit_log TO headrace_app, headrace_housekeeper;
GRANT SELECT, INSERT, UPDATE (sequence, hash) ON tenants_audit_head TO headrace_definer;
GRANT INSERT ON tenants_audit_log TO headrace_definer;

CREATE FUNCTION tenants_audit_is_history() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is never changed' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_audit_is_history BEFORE UPDATE OR DELETE ON tenants_audit_log
    FOR EACH ROW EXECUTE FUNCTION tenants_audit_is_history();
CREATE TRIGGER tenants_audit_is_kept BEFORE TRUNCATE ON tenants_audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_audit_is_history();

-- "5:hello,0:,": no two lists of fields have the same bytes. Null reads as empty.
CREATE FUNCTION tenants_netstrings(VARIADIC fields text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE
RETURN (
    SELECT convert_to(
        string_agg(octet_length(coalesce(f, '')) || ':' || coalesce(f, '') || ',', '' ORDER BY n),
        'UTF8')
      FROM unnest(fields) WITH ORDINALITY AS u (f, n));

-- What an entry's hash covers, from its row: used to write one and to verify it.
CREATE FUNCTION tenants_audit_canonical(entry tenants_audit_log) RETURNS bytea
LANGUAGE sql STABLE
RETURN tenants_netstrings(
    entry.organization_id::text, entry.sequence::text, entry.id::text,
    to_char(entry.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    entry.actor_kind, entry.actor_id::text, entry.ip, entry.request_id::text, entry.action,
    entry.target_kind, entry.target_id, entry.details::text);

-- Add an entry, in the transaction of what it records. For functions that act before a tenant is
-- known; the app calls tenants_record_audit.
CREATE FUNCTION tenants_audit(
    organization uuid, actor_kind text, actor_id uuid, ip text, request_id uuid, action text,
    target_kind text, target_id text, details jsonb
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    head tenants_audit_head;
    entry tenants_audit_log;
BEGIN
    INSERT INTO tenants_audit_head (organization_id, sequence, hash)
    SELECT organization, 0, decode(repeat('00', 32), 'hex')
     WHERE NOT EXISTS (
        SELECT FROM tenants_audit_head h WHERE h.organization_id = organization)
    ON CONFLICT DO NOTHING;
    SELECT h.* INTO STRICT head FROM tenants_audit_head h
     WHERE h.organization_id = organization FOR NO KEY UPDATE;
    entry.id := uuidv7();
    entry.organization_id := organization;
    entry.sequence := head.sequence + 1;
    entry.occurred_at := clock_timestamp();
    entry.actor_kind := actor_kind;
    entry.actor_id := actor_id;
    entry.ip := coalesce(ip, '');
    entry.request_id := request_id;
    entry.action := action;
    entry.target_kind := target_kind;
    entry.target_id := target_id;
    entry.details := coalesce(details, '{}');
    entry.previous_hash := head.hash;
    entry.hash := sha256(head.hash || tenants_audit_canonical(entry));
    INSERT INTO tenants_audit_log SELECT entry.*;
    UPDATE tenants_audit_head h SET sequence = entry.sequence, hash = entry.hash
     WHERE h.organization_id = organization;
    RETURN entry.id;
END
$$;

-- For the app: an entry of the organization whose scope is open.
CREATE FUNCTION tenants_record_audit(
    actor_kind text, actor_id uuid, ip text, request_id uuid, action text, target_kind text,
    target_id text, details jsonb
) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT tenants_audit(tenants_current(), actor_kind, actor_id, ip, request_id, action,
                         target_kind, target_id, details)
$$;

ALTER FUNCTION tenants_audit OWNER TO headrace_definer;
ALTER FUNCTION tenants_record_audit OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_audit, tenants_record_audit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_audit TO headrace_housekeeper;
GRANT EXECUTE ON FUNCTION tenants_record_audit TO headrace_app, headrace_housekeeper;
