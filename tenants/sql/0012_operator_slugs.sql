-- What tenants are called, for the operator's pages of sums. Run once by migration 0012.

CREATE FUNCTION tenants_operator_slugs(operator uuid, organizations uuid[])
RETURNS TABLE (organization_id uuid, slug text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY
    SELECT o.id, o.slug::text FROM tenants_organization o WHERE o.id = ANY (organizations);
END
$$;
ALTER FUNCTION tenants_operator_slugs OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_operator_slugs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_operator_slugs TO headrace_app;
