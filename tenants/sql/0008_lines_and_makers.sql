-- Which key a key goes back to, who invited, and endings that are for good. Run once by migration
-- 0008: a change is a new file in a new migration.

-- The first key of the line of rotations that a key belongs to; null for an unknown key.
CREATE FUNCTION tenants_key_line(key uuid) RETURNS uuid
LANGUAGE sql STABLE
RETURN (SELECT coalesce(k.line_id, k.id) FROM tenants_api_key k WHERE k.id = key);

CREATE FUNCTION tenants_ended_for_good() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'what has ended stays ended' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_disabled_for_good BEFORE UPDATE ON tenants_service_account
    FOR EACH ROW WHEN (OLD.disabled_at IS NOT NULL
                       AND NEW.disabled_at IS DISTINCT FROM OLD.disabled_at)
    EXECUTE FUNCTION tenants_ended_for_good();
CREATE TRIGGER tenants_withdrawn_for_good BEFORE UPDATE ON tenants_invitation
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL
                       AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    EXECUTE FUNCTION tenants_ended_for_good();
