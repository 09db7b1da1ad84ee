-- What signing in needs: the web process signs people in as role `app`, before a tenant is known.
-- Run once by migration 0006.

GRANT SELECT, INSERT, UPDATE, DELETE ON django_session TO headrace_app;
GRANT SELECT, INSERT, UPDATE ON tenants_user TO headrace_app;
