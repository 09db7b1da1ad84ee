-- Opening one's own account. Run once by migration 0010: a change is a new file in a new migration.

GRANT INSERT ON billing_ledger_account, billing_account TO headrace_definer;

-- For the app: the accounts of the organization whose scope is open, at zero and without credit.
CREATE FUNCTION billing_open_own_account(kinds text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    organization uuid := tenants_current();
BEGIN
    INSERT INTO billing_ledger_account (id, organization_id, kind, currency)
    SELECT uuidv7(), organization, kind, tenants_currency(organization) FROM unnest(kinds) AS kind
    ON CONFLICT DO NOTHING;
    INSERT INTO billing_account
        (ledger_account_id, organization_id, currency, posted_pico, held_pico, floor_pico,
         funded_pico, burned_pico)
    SELECT a.id, organization, a.currency, 0, 0, 0, 0, 0
      FROM billing_ledger_account a
     WHERE a.organization_id = organization AND a.kind = 'credit'
    ON CONFLICT DO NOTHING;
END
$$;
ALTER FUNCTION billing_open_own_account OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_open_own_account FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_open_own_account TO headrace_app;
