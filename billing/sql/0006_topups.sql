-- Top-ups and recharges: a payment becomes credit once, goes back once, and is bought again in time.
-- Run once by migration 0006, after 0006_credit.sql, whose order of locks holds here too: a change
-- is a new file in a new migration.

-- The top-up of a payment, taken for the rest of the transaction; by its own id where a provider's
-- message came before we noted its payment.
CREATE FUNCTION billing_lock_top_up(payment text, top_up uuid) RETURNS billing_top_up
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    found_row billing_top_up;
BEGIN
    SELECT * INTO found_row FROM billing_top_up t
     WHERE payment <> '' AND t.payment_reference = payment FOR NO KEY UPDATE;
    IF NOT FOUND AND top_up IS NOT NULL THEN
        SELECT * INTO found_row FROM billing_top_up t WHERE t.id = top_up FOR NO KEY UPDATE;
    END IF;
    IF found_row.id IS NULL THEN
        RAISE EXCEPTION 'no top-up of this payment'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'billing_top_up_missing';
    END IF;
    IF top_up IS NOT NULL AND found_row.id <> top_up
        OR payment <> '' AND found_row.payment_reference NOT IN ('', payment)
    THEN
        RAISE EXCEPTION 'the payment is another top-up''s'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'billing_top_up_payment';
    END IF;
    RETURN found_row;
END
$$;

-- A payment arrived: post cash to credit, once. False when that was done before.
CREATE FUNCTION billing_complete_top_up(payment text, top_up uuid, paid numeric) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    mine billing_top_up := billing_lock_top_up(payment, top_up);
    given billing_credit_grant;
BEGIN
    IF paid IS DISTINCT FROM mine.amount_pico THEN
        RAISE EXCEPTION 'another sum was paid than the top-up''s'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_top_up_paid';
    END IF;
    IF mine.state IN ('succeeded', 'refunded') THEN
        RETURN false;
    END IF;
    UPDATE billing_top_up
       SET state = 'succeeded', completed_at = now(), failure = '',
           payment_reference = coalesce(nullif(payment_reference, ''), payment)
     WHERE id = mine.id;
    IF mine.is_recharge THEN
        UPDATE billing_settings SET recharge_failures = 0, recharge_not_before_at = NULL
         WHERE organization_id = mine.organization_id;
    END IF;
    PERFORM tenants_emit(mine.organization_id, 'topup.succeeded', jsonb_build_object(
        'top_up_id', mine.id, 'amount_pico', mine.amount_pico::text, 'currency', mine.currency,
        'is_recharge', mine.is_recharge));
    PERFORM billing_lock_account(mine.organization_id);
    PERFORM billing_burn_grants(mine.organization_id);
    INSERT INTO billing_credit_grant (
        id, organization_id, source, category, priority, amount_pico, remaining_pico, effective_at)
    VALUES (uuidv7(), mine.organization_id, 'top_up:' || mine.id, 'paid', 0, mine.amount_pico,
            mine.amount_pico, now())
    RETURNING * INTO given;
    PERFORM billing_activate_grant(given);
    RETURN true;
END
$$;

-- A payment failed: a recharge waits longer after each failure in a row, from one hour to a day.
-- False when the top-up had been decided before.
CREATE FUNCTION billing_fail_top_up(payment text, top_up uuid, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    mine billing_top_up := billing_lock_top_up(payment, top_up);
    not_before timestamptz;
BEGIN
    IF mine.state <> 'pending' THEN
        RETURN false;
    END IF;
    UPDATE billing_top_up
       SET state = 'failed', completed_at = now(), failure = left(reason, 200),
           payment_reference = coalesce(nullif(payment_reference, ''), payment)
     WHERE id = mine.id;
    IF mine.is_recharge THEN
        UPDATE billing_settings
           SET recharge_failures = least(recharge_failures + 1, 100),
               recharge_not_before_at = now() + least(
                   interval '1 hour' * power(2, least(recharge_failures, 5)), interval '1 day')
         WHERE organization_id = mine.organization_id
        RETURNING recharge_not_before_at INTO not_before;
        PERFORM tenants_emit(mine.organization_id, 'recharge.failed', jsonb_build_object(
            'top_up_id', mine.id, 'amount_pico', mine.amount_pico::text,
            'currency', mine.currency, 'reason', left(reason, 200), 'next_not_before', not_before));
    END IF;
    RETURN true;
END
$$;

-- Give back part of a top-up, once per key. What was spent already cannot be asked for; where the
-- provider has paid it back all the same (`is_done`), the shortfall is written off; what of it is
-- still there, reserved by open holds, leaves when they are closed (billing_take_leaving).
CREATE FUNCTION billing_refund_top_up(
    payment text, top_up uuid, amount numeric, idempotency text, is_done boolean
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    mine billing_top_up := billing_lock_top_up(payment, top_up);
    before numeric;
    given billing_credit_grant;
    taken numeric;
    reserved numeric;
    tx uuid;
BEGIN
    IF (amount > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a refund must be positive' USING ERRCODE = 'check_violation';
    END IF;
    SELECT l.amount_pico INTO before
      FROM billing_ledger_tx t
      JOIN billing_ledger_leg l ON l.transaction_id = t.id
      JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'cash'
     WHERE t.organization_id = mine.organization_id
       AND t.idempotency_key = 'refund:' || idempotency;
    IF FOUND THEN
        IF before <> amount THEN
            RAISE EXCEPTION 'the key was used for another refund'
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'billing_refund_once';
        END IF;
        RETURN false;
    END IF;
    IF mine.state <> 'succeeded' OR amount > mine.amount_pico - mine.refunded_pico THEN
        RAISE EXCEPTION 'that much was not paid, or is refunded already'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_refund_amount';
    END IF;
    UPDATE billing_top_up
       SET refunded_pico = refunded_pico + amount,
           state = CASE WHEN refunded_pico + amount = amount_pico THEN 'refunded' ELSE state END
     WHERE id = mine.id;
    PERFORM billing_lock_account(mine.organization_id);
    PERFORM billing_burn_grants(mine.organization_id);
    SELECT * INTO STRICT given FROM billing_credit_grant g
     WHERE g.organization_id = mine.organization_id AND g.source = 'top_up:' || mine.id;
    taken := least(amount, given.remaining_pico - given.leaving_pico,
                   billing_free_credit(mine.organization_id));
    IF taken < amount AND NOT is_done THEN
        RAISE EXCEPTION 'more than is left of what was paid'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_refund_amount';
    END IF;
    tx := billing_post(
        mine.organization_id, 'refund:' || idempotency, 'refund',
        jsonb_build_object('credit', -taken, 'write_off', taken - amount, 'cash', amount),
        given.ledger_tx_id);
    IF taken > 0 THEN
        PERFORM billing_take_from_grant(given.id, 'refunded', taken, tx);
    END IF;
    reserved := least(amount, given.remaining_pico - given.leaving_pico) - taken;
    IF reserved > 0 THEN
        UPDATE billing_credit_grant SET leaving_pico = leaving_pico + reserved
         WHERE id = given.id;
        PERFORM billing_sum_leaving(mine.organization_id);
    END IF;
    PERFORM tenants_audit(
        mine.organization_id, 'system', NULL, '', NULL, 'topup.refunded', 'top_up', mine.id::text,
        jsonb_build_object('amount_pico', amount::text, 'written_off_pico',
                           (amount - taken - reserved)::text, 'reserved_pico', reserved::text));
    RETURN true;
END
$$;

-- What recharges of this calendar month come to, those that wait included. A time zone that this
-- server does not know counts as UTC: one tenant's must not stop the others' recharges.
CREATE FUNCTION billing_recharged_this_month(organization uuid) RETURNS numeric
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    month_start timestamptz;
BEGIN
    BEGIN
        SELECT date_trunc('month', now(), o.time_zone) INTO month_start
          FROM tenants_organization o WHERE o.id = organization;
    EXCEPTION WHEN invalid_parameter_value THEN
        month_start := date_trunc('month', now(), 'UTC');
    END;
    RETURN coalesce((
        SELECT sum(t.amount_pico) FROM billing_top_up t
         WHERE t.organization_id = organization AND t.is_recharge AND t.state <> 'failed'
           AND t.created_at >= month_start), 0);
END
$$;

-- Begin the recharge of an organization if it is due; null if not. One at a time: the settings row
-- is held from the look at open ones to the insert, and a unique index has the last word.
CREATE FUNCTION billing_begin_recharge(organization uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    settings billing_settings;
    account billing_account;
    top_up uuid := uuidv7();
BEGIN
    SELECT * INTO settings FROM billing_settings s WHERE s.organization_id = organization
       FOR NO KEY UPDATE;
    SELECT * INTO account FROM billing_account a WHERE a.organization_id = organization;
    IF NOT coalesce(settings.recharge_is_enabled, false)
        OR account.posted_pico >= settings.recharge_threshold_pico
        OR settings.recharge_not_before_at > now()
        OR EXISTS (SELECT FROM billing_top_up t WHERE t.organization_id = organization
                      AND t.is_recharge AND t.state = 'pending')
    THEN
        RETURN NULL;
    END IF;
    IF settings.recharge_amount_pico + billing_recharged_this_month(organization)
        > settings.recharge_month_max_pico
    THEN
        RETURN NULL;
    END IF;
    INSERT INTO billing_top_up (id, organization_id, amount_pico, currency, is_recharge,
                                idempotency_key)
    VALUES (top_up, organization, settings.recharge_amount_pico, account.currency, true,
            'recharge:' || top_up);
    RETURN top_up;
END
$$;

-- Organizations whose balance is below their recharge threshold, whose month has room for one more
-- and that may try again; who waited longest since its last first. One that is suspended or closed
-- cannot spend, and is not asked for money.
CREATE FUNCTION billing_recharges_due(organizations_max int) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT s.organization_id
      FROM billing_settings s JOIN billing_account a ON a.organization_id = s.organization_id
      JOIN tenants_organization o ON o.id = s.organization_id AND o.status = 'active'
     WHERE s.recharge_is_enabled AND a.posted_pico < s.recharge_threshold_pico
       AND (s.recharge_not_before_at IS NULL OR s.recharge_not_before_at <= now())
       AND NOT EXISTS (SELECT FROM billing_top_up t WHERE t.organization_id = s.organization_id
                          AND t.is_recharge AND t.state = 'pending')
       AND s.recharge_amount_pico + billing_recharged_this_month(s.organization_id)
           <= s.recharge_month_max_pico
     ORDER BY (SELECT max(t.created_at) FROM billing_top_up t
                WHERE t.organization_id = s.organization_id AND t.is_recharge) NULLS FIRST,
              s.organization_id
     LIMIT organizations_max
$$;

-- Tell `balance.low` once for each time a balance falls below its warning level; returns how many.
CREATE FUNCTION billing_watch_balances(organizations_max int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    watched record;
    told int := 0;
BEGIN
    FOR watched IN
        SELECT s.organization_id, s.low_balance_pico, a.posted_pico, a.currency,
               coalesce(a.posted_pico < s.low_balance_pico, false) AS is_low
          FROM billing_settings s JOIN billing_account a ON a.organization_id = s.organization_id
         WHERE coalesce(a.posted_pico < s.low_balance_pico, false)
            <> (s.low_since_at IS NOT NULL)
         ORDER BY s.low_since_at NULLS FIRST, s.organization_id
         LIMIT organizations_max FOR NO KEY UPDATE OF s SKIP LOCKED
    LOOP
        UPDATE billing_settings
           SET low_since_at = CASE WHEN watched.is_low THEN now() END
         WHERE organization_id = watched.organization_id;
        IF watched.is_low THEN
            PERFORM tenants_emit(watched.organization_id, 'balance.low', jsonb_build_object(
                'balance_pico', watched.posted_pico::text,
                'threshold_pico', watched.low_balance_pico::text, 'currency', watched.currency));
            told := told + 1;
        END IF;
    END LOOP;
    RETURN told;
END
$$;

ALTER FUNCTION billing_lock_top_up OWNER TO headrace_definer;
ALTER FUNCTION billing_complete_top_up OWNER TO headrace_definer;
ALTER FUNCTION billing_fail_top_up OWNER TO headrace_definer;
ALTER FUNCTION billing_refund_top_up OWNER TO headrace_definer;
ALTER FUNCTION billing_recharged_this_month OWNER TO headrace_definer;
ALTER FUNCTION billing_begin_recharge OWNER TO headrace_definer;
ALTER FUNCTION billing_recharges_due OWNER TO headrace_definer;
ALTER FUNCTION billing_watch_balances OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_lock_top_up, billing_complete_top_up, billing_fail_top_up, billing_refund_top_up,
    billing_recharged_this_month, billing_begin_recharge, billing_recharges_due,
    billing_watch_balances
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_complete_top_up, billing_fail_top_up, billing_refund_top_up, billing_begin_recharge,
    billing_recharges_due, billing_watch_balances
    TO headrace_housekeeper;
