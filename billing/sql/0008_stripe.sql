-- What Stripe is told and tells: who may write which of it, and the one function that lets a
-- message move money. Run once by migration 0008: a change is a new file in a new migration.
--
-- Locks: event marker, then those of the top-up's functions (0006_credit.sql).

SELECT tenants_protect('billing_stripe_account');
SELECT tenants_protect('billing_stripe_event');
SELECT tenants_protect('billing_stripe_checkout');
SELECT tenants_protect('billing_stripe_export');

-- What foreign keys that carry the tenant point at.
ALTER TABLE billing_top_up ADD CONSTRAINT billing_top_up_with_tenant UNIQUE (organization_id, id);
ALTER TABLE billing_stripe_checkout ADD CONSTRAINT billing_stripe_checkout_of_its_top_up
    FOREIGN KEY (organization_id, top_up_id) REFERENCES billing_top_up (organization_id, id);
ALTER TABLE billing_stripe_event ADD CONSTRAINT billing_stripe_event_of_its_top_up
    FOREIGN KEY (organization_id, top_up_id) REFERENCES billing_top_up (organization_id, id);
ALTER TABLE billing_stripe_export ADD CONSTRAINT billing_stripe_export_tenant
    FOREIGN KEY (organization_id) REFERENCES tenants_organization (id);
CREATE INDEX billing_stripe_event_quarantined ON billing_stripe_event (applied_at)
    WHERE outcome = 'quarantined';
CREATE INDEX billing_stripe_export_delivered ON billing_stripe_export (hour, organization_id);

GRANT SELECT ON billing_stripe_account, billing_stripe_event, billing_stripe_checkout,
    billing_stripe_export TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT (organization_id, customer_id), UPDATE (customer_id)
    ON billing_stripe_account TO headrace_app, headrace_housekeeper;
GRANT INSERT (is_demo), UPDATE (is_demo) ON billing_stripe_account TO headrace_housekeeper;
GRANT UPDATE (payment_method_id, payment_method_at) ON billing_stripe_account TO headrace_definer;
GRANT INSERT ON billing_stripe_checkout TO headrace_app, headrace_housekeeper;
GRANT UPDATE (looked_at) ON billing_stripe_checkout TO headrace_housekeeper;
GRANT INSERT ON billing_stripe_event TO headrace_definer;
GRANT INSERT (id, organization_id, hour, model, token_class, sequence, tokens),
    UPDATE (state, sent_at, attempts, failure, closed_at)
    ON billing_stripe_export TO headrace_housekeeper;

CREATE FUNCTION billing_stripe_customer_kept() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'an organization keeps its customer'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'billing_stripe_customer_kept';
END
$$;
CREATE TRIGGER billing_stripe_customer_kept BEFORE UPDATE ON billing_stripe_account
    FOR EACH ROW WHEN (OLD.customer_id <> '' AND NEW.customer_id <> OLD.customer_id)
    EXECUTE FUNCTION billing_stripe_customer_kept();

CREATE FUNCTION billing_stripe_export_forward() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'an export that is closed stays so'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'billing_stripe_export_forward';
END
$$;
CREATE TRIGGER billing_stripe_export_forward BEFORE UPDATE ON billing_stripe_export
    FOR EACH ROW WHEN (OLD.state <> 'pending')
    EXECUTE FUNCTION billing_stripe_export_forward();

-- What of a top-up went back by Stripe's refunds: all but what was paid back otherwise (a dispute),
-- which Stripe does not count as refunded.
CREATE FUNCTION billing_stripe_refunded(top_up uuid) RETURNS numeric
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT t.refunded_pico - coalesce((
        SELECT sum(l.amount_pico)
          FROM billing_ledger_tx x
          JOIN billing_ledger_leg l ON l.transaction_id = x.id
          JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'cash'
         WHERE x.organization_id = t.organization_id
           AND x.idempotency_key = 'refund:paid-back:' || t.id), 0)
      FROM billing_top_up t WHERE t.id = top_up
$$;

-- What one event does to a top-up; whether it changed anything. Whatever order events come in, the
-- books end the same: a refund implies the payment, and says all that was given back so far.
CREATE FUNCTION billing_stripe_effect(
    effect text, payment text, top_up uuid, paid numeric, refunded numeric, reason text
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    changed boolean := false;
    known numeric;
BEGIN
    IF effect = 'fail' THEN
        RETURN billing_fail_top_up(payment, top_up, reason);
    END IF;
    IF (effect IN ('complete', 'refund')) IS NOT TRUE THEN
        RAISE EXCEPTION 'an effect is complete, fail or refund'
            USING ERRCODE = 'data_exception';
    END IF;
    changed := billing_complete_top_up(payment, top_up, paid);
    IF effect = 'refund' THEN
        known := billing_stripe_refunded(top_up);
        IF refunded > known THEN
            PERFORM billing_refund_top_up(payment, top_up, refunded - known,
                                          'stripe:' || payment || ':' || refunded, true);
            changed := true;
        END IF;
    END IF;
    RETURN changed;
END
$$;

-- Apply one verified event: its marker and its effect in this one transaction. Answers
--   applied      the books changed
--   unchanged    what it says was known, or is older than what is known
--   repeated     this very event was here before
--   quarantined  it contradicts the books: marked, nothing changed, somebody must look
--   unknown      its customer or top-up is not here (yet): no marker, it must come again
-- For the app, before a tenant is known: what the event names is checked against our own rows.
CREATE FUNCTION billing_stripe_apply(
    event text, event_kind text, event_at timestamptz, organization uuid, customer text,
    top_up uuid, effect text, payment text, currency text, paid numeric, refunded numeric,
    reason text, card text
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    sold_in text;
    result text;
    detail text := '';
BEGIN
    -- Deliveries of one event at once wait here for each other.
    PERFORM pg_advisory_xact_lock(hashtextextended('billing_stripe_event:' || event, 0));
    IF EXISTS (SELECT FROM billing_stripe_event e WHERE e.id = event) THEN
        RETURN 'repeated';
    END IF;
    SELECT t.currency INTO sold_in
      FROM billing_top_up t JOIN billing_stripe_account a USING (organization_id)
     WHERE t.id = top_up AND t.organization_id = organization
       AND a.customer_id = customer AND customer <> '';
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    BEGIN
        IF sold_in <> upper(currency) THEN
            RAISE EXCEPTION 'another currency was paid than the top-up''s'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_top_up_paid';
        END IF;
        result := CASE WHEN billing_stripe_effect(effect, payment, top_up, paid, refunded, reason)
                       THEN 'applied' ELSE 'unchanged' END;
    EXCEPTION WHEN integrity_constraint_violation THEN
        result := 'quarantined';
        detail := left(SQLERRM, 200);
    END;
    IF card <> '' AND result <> 'quarantined' THEN
        UPDATE billing_stripe_account
           SET payment_method_id = card, payment_method_at = event_at
         WHERE organization_id = organization
           AND (payment_method_at IS NULL OR payment_method_at <= event_at);
    END IF;
    INSERT INTO billing_stripe_event (
        id, organization_id, kind, top_up_id, outcome, detail, created_at)
    VALUES (event, organization, event_kind, top_up, result, detail, event_at);
    RETURN result;
END
$$;

ALTER FUNCTION billing_stripe_refunded OWNER TO headrace_definer;
ALTER FUNCTION billing_stripe_effect OWNER TO headrace_definer;
ALTER FUNCTION billing_stripe_apply OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_stripe_refunded, billing_stripe_effect, billing_stripe_apply FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_stripe_refunded TO headrace_housekeeper;
GRANT EXECUTE ON FUNCTION billing_stripe_apply TO headrace_app, headrace_housekeeper;
