-- Row-level security, grants, composite foreign keys and the SECURITY DEFINER functions of
-- `tenants`. Run once by migration 0001: a change is a new file in a new migration.

-- Whose rows this transaction may see; null (so: nobody's) outside a scope. After a transaction a
-- pooled connection holds the setting as an empty string, not as missing.
CREATE FUNCTION tenants_current() RETURNS uuid
LANGUAGE sql STABLE
RETURN nullif(current_setting('headrace.organization_id', true), '')::uuid;

-- Put a table under the tenant policy. Every app's migration calls this for each tenant table.
CREATE FUNCTION tenants_protect(target regclass, tenant_column text DEFAULT 'organization_id')
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target);
    EXECUTE format(
        'CREATE POLICY tenant ON %s USING (%I = (SELECT tenants_current()))'
        ' WITH CHECK (%I = (SELECT tenants_current()))',
        target, tenant_column, tenant_column
    );
END
$$;
REVOKE ALL ON FUNCTION tenants_protect FROM PUBLIC;

SELECT tenants_protect('tenants_organization', 'id');
SELECT tenants_protect('tenants_project');
SELECT tenants_protect('tenants_membership');
SELECT tenants_protect('tenants_api_key');

ALTER TABLE tenants_api_key
    ADD CONSTRAINT tenants_key_in_its_project
    FOREIGN KEY (organization_id, project_id) REFERENCES tenants_project (organization_id, id);

GRANT SELECT ON tenants_organization TO headrace_app;
GRANT SELECT, INSERT, UPDATE (name, archived_at) ON tenants_project TO headrace_app;
GRANT SELECT, INSERT, UPDATE (role), DELETE ON tenants_membership TO headrace_app;
GRANT SELECT, INSERT, UPDATE (name, expires_at, revoked_at) ON tenants_api_key TO headrace_app;

GRANT SELECT, INSERT, UPDATE ON tenants_organization, tenants_project, tenants_api_key
    TO headrace_housekeeper;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_membership, tenants_user TO headrace_housekeeper;

GRANT SELECT ON tenants_organization, tenants_project TO headrace_definer;
-- Readiness and `makemigrations --check` compare it with the code; it knows no tenant.
GRANT SELECT ON django_migrations TO headrace_app, headrace_housekeeper;
GRANT SELECT, UPDATE (last_used_at) ON tenants_api_key TO headrace_definer;

-- A revocation is for good, whoever asks.
CREATE FUNCTION tenants_revoked_for_good() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a revoked key stays revoked' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_revoked_for_good BEFORE UPDATE ON tenants_api_key
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL
                       AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    EXECUTE FUNCTION tenants_revoked_for_good();

-- Before a tenant is known: who speaks with the secret of this hash? No row for an unknown,
-- revoked or expired key. Notes the use, at most every 5 minutes.
CREATE FUNCTION tenants_authenticate(hash bytea, scheme text)
RETURNS TABLE (
    key_id uuid, project_id uuid, organization_id uuid, organization_slug text, currency text,
    requests_per_minute_max int, tokens_per_minute_max int, concurrent_requests_max int,
    expires_at timestamptz, secret_hash bytea, archived boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    used_before timestamptz;
BEGIN
    SELECT k.id, k.project_id, o.id, o.slug::text, o.currency::text,
           o.requests_per_minute_max, o.tokens_per_minute_max, o.concurrent_requests_max,
           k.expires_at, k.secret_hash, p.archived_at IS NOT NULL, k.last_used_at
      INTO key_id, project_id, organization_id, organization_slug, currency,
           requests_per_minute_max, tokens_per_minute_max, concurrent_requests_max,
           expires_at, secret_hash, archived, used_before
      FROM tenants_api_key k
      JOIN tenants_project p ON p.id = k.project_id
      JOIN tenants_organization o ON o.id = k.organization_id
     WHERE k.secret_hash = hash AND k.hash_scheme = scheme
       AND k.revoked_at IS NULL
       AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF used_before IS NULL OR used_before < now() - interval '5 minutes' THEN
        -- Coarse on purpose, and never worth waiting for another caller's lock.
        UPDATE tenants_api_key SET last_used_at = now()
         WHERE id = (SELECT id FROM tenants_api_key WHERE id = key_id
                        FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    RETURN NEXT;
END
$$;

-- For open streams of several tenants at once: which of these keys may not go on? Unknown ones too.
CREATE FUNCTION tenants_revoked_among(key_ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT asked.id FROM unnest(key_ids) AS asked (id)
     WHERE NOT EXISTS (
        SELECT FROM tenants_api_key k JOIN tenants_project p ON p.id = k.project_id
         WHERE k.id = asked.id
           AND k.revoked_at IS NULL
           AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
           AND p.archived_at IS NULL)
$$;

-- For the hold: why this key may not spend in this project of this organization; empty if it may.
CREATE FUNCTION tenants_key_refusal(organization uuid, project uuid, key uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT coalesce((
        SELECT CASE
                 WHEN k.revoked_at IS NOT NULL OR k.expires_at <= clock_timestamp()
                     THEN 'key_revoked'
                 WHEN p.archived_at IS NOT NULL THEN 'project_archived'
                 ELSE ''
               END
          FROM tenants_api_key k JOIN tenants_project p ON p.id = k.project_id
         WHERE k.id = key AND k.project_id = project AND k.organization_id = organization
    ), 'key_revoked')
$$;

-- For prices: the currency an organization buys in; null for an unknown one.
CREATE FUNCTION tenants_currency(organization uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT o.currency::text FROM tenants_organization o WHERE o.id = organization
$$;

-- Organization switch: find a tenant by its public name.
CREATE FUNCTION tenants_organization_by_slug(wanted text)
RETURNS TABLE (id uuid, slug text, display_name text, currency text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT o.id, o.slug::text, o.display_name::text, o.currency::text
      FROM tenants_organization o WHERE o.slug = wanted
$$;

ALTER FUNCTION tenants_authenticate OWNER TO headrace_definer;
ALTER FUNCTION tenants_revoked_among OWNER TO headrace_definer;
ALTER FUNCTION tenants_key_refusal OWNER TO headrace_definer;
ALTER FUNCTION tenants_currency OWNER TO headrace_definer;
ALTER FUNCTION tenants_organization_by_slug OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_authenticate, tenants_revoked_among, tenants_key_refusal,
    tenants_currency, tenants_organization_by_slug FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_authenticate, tenants_revoked_among,
    tenants_organization_by_slug TO headrace_app, headrace_housekeeper;
