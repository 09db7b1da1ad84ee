-- Before a request: what it would cost, and the credit to pay it from. Run once by migration 0002:
-- a change is a new file in a new migration.

-- The prices in force now. No row unless the offer is active and input and output have a price;
-- cached input falls back to input.
CREATE FUNCTION billing_quote(organization uuid, wanted text, wanted_tier text)
RETURNS TABLE (
    offer_id uuid, public_id text, display_name text, owned_by text, context_tokens_max int,
    output_tokens_max int, created_at timestamptz, currency text,
    input_price_id uuid, cached_input_price_id uuid, output_price_id uuid,
    input_micros bigint, cached_input_micros bigint, output_micros bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH price AS (
        SELECT p.offer_id, p.token_class, p.id, p.price_micros_per_mtok AS micros, p.currency
          FROM billing_offer o
          JOIN billing_price p ON p.offer_id = o.id
         WHERE o.public_id = wanted AND o.is_active
           AND p.tier = wanted_tier AND p.currency = tenants_currency(organization)
           AND p.valid @> now()
    )
    SELECT o.id, o.public_id::text, o.display_name::text, o.owned_by::text,
           o.context_tokens_max, o.output_tokens_max, o.created_at, input.currency::text,
           input.id, coalesce(cached.id, input.id), output.id,
           input.micros, coalesce(cached.micros, input.micros), output.micros
      FROM billing_offer o
      JOIN price input ON input.offer_id = o.id AND input.token_class = 'input'
      JOIN price output ON output.offer_id = o.id AND output.token_class = 'output'
      LEFT JOIN price cached ON cached.offer_id = o.id AND cached.token_class = 'cached_input'
$$;

-- Money in, once per key. False when the key was used before with the same amount; another amount
-- is an error. The organization's account must be open.
CREATE FUNCTION billing_grant_credit(organization uuid, amount numeric, idempotency text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid := uuidv7();
    before numeric;
BEGIN
    ASSERT amount > 0, 'a grant must be positive';
    INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind)
    VALUES (tx, organization, 'grant:' || idempotency, 'grant')
    ON CONFLICT (organization_id, idempotency_key) DO NOTHING;
    IF NOT FOUND THEN
        SELECT l.amount_pico INTO before
          FROM billing_ledger_tx t
          JOIN billing_ledger_leg l ON l.transaction_id = t.id
          JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'credit'
         WHERE t.organization_id = organization
           AND t.idempotency_key = 'grant:' || idempotency;
        IF before IS DISTINCT FROM amount THEN
            RAISE EXCEPTION 'the key was used for another grant'
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'billing_grant_once';
        END IF;
        RETURN false;
    END IF;
    INSERT INTO billing_ledger_leg (id, organization_id, transaction_id, account_id, amount_pico)
    SELECT uuidv7(), organization, tx, a.id, leg.amount
      FROM (VALUES ('credit', amount), ('promo', -amount)) AS leg (kind, amount)
      JOIN billing_ledger_account a ON a.organization_id = organization AND a.kind = leg.kind;
    UPDATE billing_account SET posted_pico = posted_pico + amount
     WHERE organization_id = organization;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the organization has no account'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'billing_grant_account';
    END IF;
    RETURN true;
END
$$;

ALTER FUNCTION billing_quote OWNER TO headrace_definer;
ALTER FUNCTION billing_grant_credit OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_quote, billing_grant_credit
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_quote
    TO headrace_app, headrace_housekeeper;
GRANT EXECUTE ON FUNCTION
    billing_grant_credit
    TO headrace_housekeeper;
