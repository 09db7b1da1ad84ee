-- Pages that stay open ask it for all who look, whatever their organizations. Run once by 0010.

CREATE FUNCTION tenants_standing_among(people uuid[], organizations uuid[])
RETURNS TABLE (user_id uuid, organization_id uuid, role text, second_factor_required boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT m.user_id, m.organization_id, m.role::text, o.second_factor_required
      FROM unnest(people, organizations) AS asked(person, organization)
      JOIN tenants_membership m
        ON m.user_id = asked.person AND m.organization_id = asked.organization
      JOIN tenants_organization o ON o.id = m.organization_id
     WHERE o.status <> 'closed'
$$;

ALTER FUNCTION tenants_standing_among OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_standing_among FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_standing_among TO headrace_app;
