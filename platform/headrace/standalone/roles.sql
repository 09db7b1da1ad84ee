-- The one step that takes a PostgreSQL superuser: the four roles and the database.
-- Idempotent. The embedded server runs it at each start; for a PostgreSQL of your own:
--   psql -d postgres -v owner_password=... -v app_password=... -v housekeeper_password=... \
--     -f roles.sql

SELECT format('CREATE ROLE %I', name)
FROM unnest(ARRAY[
    'headrace_owner', 'headrace_app', 'headrace_housekeeper', 'headrace_definer'
]) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec

-- Runs migrations and owns the tables; under FORCE ROW LEVEL SECURITY it sees no tenant's rows.
ALTER ROLE headrace_owner LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE
    PASSWORD :'owner_password';
-- Web and worker: owns nothing, sees one tenant at a time.
ALTER ROLE headrace_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE
    PASSWORD :'app_password';
-- Sweeps, claims and set-up: the worker only.
ALTER ROLE headrace_housekeeper LOGIN NOSUPERUSER BYPASSRLS NOCREATEDB NOCREATEROLE
    PASSWORD :'housekeeper_password';
-- Owns the SECURITY DEFINER functions, which act before a tenant is known; nobody logs in as it.
ALTER ROLE headrace_definer NOLOGIN NOSUPERUSER BYPASSRLS NOCREATEDB NOCREATEROLE;
-- So that migrations may give functions to it.
GRANT headrace_definer TO headrace_owner WITH INHERIT TRUE, SET TRUE;

SELECT $$CREATE DATABASE headrace OWNER headrace_owner
    TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin LOCALE 'C.UTF-8'$$
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'headrace') \gexec
-- CONNECT and TEMPORARY are everybody's by default: a temporary table could shadow a name.
REVOKE CONNECT, TEMPORARY ON DATABASE headrace FROM PUBLIC;
GRANT CONNECT ON DATABASE headrace TO headrace_owner, headrace_app, headrace_housekeeper;

\connect headrace
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO headrace_app, headrace_housekeeper;
-- A function's new owner must be allowed to create in its schema.
GRANT USAGE, CREATE ON SCHEMA public TO headrace_owner, headrace_definer;
-- No table grant and no default privilege here: each migration grants what it creates.
