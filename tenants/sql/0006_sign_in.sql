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
