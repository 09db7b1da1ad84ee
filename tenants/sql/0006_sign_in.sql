-- What signing in needs: the web process signs people in as role `app`, before a tenant is known.
-- The tables are a person's, not a tenant's: no policy can stand on them. Run once by migration 0006.

GRANT SELECT, INSERT, UPDATE, DELETE
    ON django_session, account_emailaddress, account_emailconfirmation, mfa_authenticator,
       socialaccount_socialaccount, socialaccount_socialtoken
    TO headrace_app;
GRANT SELECT, DELETE ON django_session, account_emailaddress, mfa_authenticator,
       socialaccount_socialaccount TO headrace_housekeeper;
-- Providers are configured by the environment; the table stays empty.
GRANT SELECT ON socialaccount_socialapp TO headrace_app;
GRANT SELECT, INSERT, UPDATE ON tenants_user TO headrace_app;

-- Signing up makes a customer. Staff are made by the operator, whatever a request claims.
CREATE FUNCTION tenants_no_staff_by_app() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_user = 'headrace_app' THEN
        RAISE EXCEPTION 'the app makes nobody staff' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_no_staff_on_insert BEFORE INSERT ON tenants_user
    FOR EACH ROW WHEN (NEW.is_staff OR NEW.is_superuser)
    EXECUTE FUNCTION tenants_no_staff_by_app();
CREATE TRIGGER tenants_no_staff_on_update BEFORE UPDATE ON tenants_user
    FOR EACH ROW WHEN (NEW.is_staff IS DISTINCT FROM OLD.is_staff
                       OR NEW.is_superuser IS DISTINCT FROM OLD.is_superuser)
    EXECUTE FUNCTION tenants_no_staff_by_app();

-- Founding: a person who has signed in makes an organization of their own. False when they own as
-- many as there may be; who founds many at once is counted one after the other. Raises
-- unique_violation for a slug that is taken.
CREATE FUNCTION tenants_found_organization(
    organization uuid, person uuid, slug text, display_name text, currency text,
    requests_per_minute_max int, tokens_per_minute_max int, concurrent_requests_max int,
    owned_max int, person_ip text, request_id uuid
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('founding ' || person::text, 0));
    IF (SELECT count(*) FROM tenants_membership m
         WHERE m.user_id = person AND m.role = 'owner') >= owned_max
       OR NOT EXISTS (SELECT FROM tenants_user u WHERE u.id = person AND u.is_active) THEN
        RETURN false;
    END IF;
    INSERT INTO tenants_organization
        (id, slug, display_name, currency, requests_per_minute_max, tokens_per_minute_max,
         concurrent_requests_max, status, time_zone, cost_tags, cache_per_project)
    VALUES (organization, slug, display_name, currency, requests_per_minute_max,
            tokens_per_minute_max, concurrent_requests_max, 'active', 'UTC', '{}', false);
    INSERT INTO tenants_membership (id, organization_id, user_id, role)
    VALUES (uuidv7(), organization, person, 'owner');
    PERFORM tenants_audit(organization, 'user', person, person_ip, request_id,
                          'organization.created', 'organization', organization::text,
                          jsonb_build_object('slug', slug));
    RETURN true;
END
$$;
GRANT INSERT ON tenants_organization TO headrace_definer;
ALTER FUNCTION tenants_found_organization OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_found_organization FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_found_organization TO headrace_app;
