-- What the operator's pages read of all tenants. Run once by migration 0011.
--
-- The web's role sees one tenant at a time, and the housekeeper's connection is not the web's. Each
-- function is told who asks, and asks the tables itself whether they are of the staff.

GRANT SELECT (is_staff) ON tenants_user TO headrace_definer;
GRANT SELECT (user_id, type) ON mfa_authenticator TO headrace_definer;

-- Raises unless this person is active, of the staff, and has a second factor.
CREATE FUNCTION tenants_require_operator(operator uuid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM tenants_user u
         WHERE u.id = operator AND u.is_active AND u.is_staff
           AND EXISTS (SELECT FROM mfa_authenticator a
                        WHERE a.user_id = u.id AND a.type IN ('totp', 'webauthn'))) THEN
        RAISE EXCEPTION 'this is for operators' USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

-- Tenants by slug, from behind the one named; of those whose slug or name contains `wanted`.
CREATE FUNCTION tenants_operator_tenants(operator uuid, wanted text, after text, rows_max int)
RETURNS TABLE (
    organization_id uuid, slug text, display_name text, currency text, status text,
    time_zone text, created_at timestamptz, members bigint,
    requests_max int, tokens_max int, input_tokens_max int, output_tokens_max int,
    concurrent_max int
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY
    SELECT o.id, o.slug::text, o.display_name::text, o.currency::text, o.status::text,
           o.time_zone::text, o.created_at,
           (SELECT count(*) FROM tenants_membership m WHERE m.organization_id = o.id),
           o.requests_per_minute_max, o.tokens_per_minute_max, o.input_tokens_per_minute_max,
           o.output_tokens_per_minute_max, o.concurrent_requests_max
      FROM tenants_organization o
     WHERE o.slug > after
       AND (wanted = '' OR position(lower(wanted) IN lower(o.slug || ' ' || o.display_name)) > 0)
     ORDER BY o.slug LIMIT rows_max;
END
$$;

ALTER FUNCTION tenants_require_operator OWNER TO headrace_definer;
ALTER FUNCTION tenants_operator_tenants OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_require_operator, tenants_operator_tenants FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_operator_tenants TO headrace_app;
