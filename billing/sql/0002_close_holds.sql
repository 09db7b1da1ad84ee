-- The ways out of an open hold: settled, voided, swept; and renewing one. Run once by migration
-- 0002: a change is a new file in a new migration.
--
-- Every way out is a guarded UPDATE of `state`, so each hold takes exactly one. Locks come in the
-- order of 0002_take_holds.sql: holds by id, quota counters by policy, accounts by id.

-- Give back what closed holds reserved and take what they cost: counters, then accounts.
CREATE FUNCTION billing_release(closed uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    delta record;
BEGIN
    FOR delta IN
        SELECT quota_policy_id AS policy, quota_window_start AS window_start,
               sum(prompt_tokens + output_tokens_max) AS reserved, sum(used_tokens) AS used
          FROM billing_hold WHERE id = ANY (closed) AND quota_policy_id IS NOT NULL
         GROUP BY quota_policy_id, quota_window_start
         ORDER BY quota_policy_id, quota_window_start
    LOOP
        UPDATE billing_quota_counter
           SET held_tokens = held_tokens - delta.reserved, used_tokens = used_tokens + delta.used
         WHERE policy_id = delta.policy AND window_start = delta.window_start;
    END LOOP;
    FOR delta IN
        SELECT account_id, sum(amount_pico) AS amount, sum(charge_pico) AS charge
          FROM billing_hold WHERE id = ANY (closed) GROUP BY account_id ORDER BY account_id
    LOOP
        UPDATE billing_account
           SET held_pico = held_pico - delta.amount, posted_pico = posted_pico - delta.charge
         WHERE ledger_account_id = delta.account_id;
    END LOOP;
END
$$;

-- Write a closed hold's one usage event and its balanced ledger transaction, which exists also when
-- the charge is 0. What the hold did not cover is written off, never taken from the balance.
CREATE FUNCTION billing_record_usage(
    hold billing_hold, uncached bigint, cached bigint, output bigint, finish_reason text,
    model_served text, source text, queue_ms bigint, prefill_ms bigint, decode_ms bigint
) RETURNS numeric
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid := uuidv7();
    cost numeric := uncached::numeric * hold.input_micros_per_mtok
        + cached::numeric * hold.cached_input_micros_per_mtok
        + output::numeric * hold.output_micros_per_mtok;
BEGIN
    INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind)
    VALUES (tx, hold.organization_id, 'usage:' || hold.id, 'usage');
    INSERT INTO billing_ledger_leg (id, organization_id, transaction_id, account_id, amount_pico)
    SELECT uuidv7(), hold.organization_id, tx, a.id, leg.amount
      FROM (VALUES ('credit', -hold.charge_pico),
                   ('revenue', cost),
                   ('write_off', hold.charge_pico - cost)) AS leg (kind, amount)
      JOIN billing_ledger_account a
        ON a.organization_id = hold.organization_id AND a.kind = leg.kind
     WHERE leg.amount <> 0;
    INSERT INTO billing_usage_event (
        occurred_at, request_id, organization_id, project_id, key_id, ledger_tx_id, held_at, tier,
        currency, model_asked, model_served, uncached_input_tokens, cached_input_tokens,
        output_tokens, input_price_id, cached_input_price_id, output_price_id,
        input_micros_per_mtok, cached_input_micros_per_mtok, output_micros_per_mtok,
        cost_pico, charge_pico, finish_reason, source, queue_ms, prefill_ms, decode_ms)
    VALUES (
        hold.closed_at, hold.id, hold.organization_id, hold.project_id, hold.key_id, tx,
        hold.created_at, hold.tier, hold.currency, hold.model_asked, model_served, uncached,
        cached, output, hold.input_price_id, hold.cached_input_price_id, hold.output_price_id,
        hold.input_micros_per_mtok, hold.cached_input_micros_per_mtok,
        hold.output_micros_per_mtok, cost, hold.charge_pico, finish_reason, source, queue_ms,
        prefill_ms, decode_ms);
    RETURN cost;
END
$$;

-- Close each open hold with what its request used. The guarded UPDATE out of `open` is the
-- exactly-once gate: replays answer posted = false and the earlier charge, unknown ids 0.
CREATE FUNCTION billing_settle_holds(items jsonb)
RETURNS TABLE (request_id uuid, posted boolean, charge_pico numeric, cost_pico numeric)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    item record;
    hold billing_hold;
    closed uuid[] := '{}';
BEGIN
    FOR item IN
        SELECT * FROM jsonb_to_recordset(items) AS i (
            id uuid, organization uuid, uncached bigint, cached bigint, output bigint,
            finish_reason text, model_served text, source text, queue_ms bigint,
            prefill_ms bigint, decode_ms bigint)
         ORDER BY i.id
    LOOP
        UPDATE billing_hold h
           SET state = 'posted', closed_at = now(),
               used_tokens = item.uncached + item.cached + item.output,
               charge_pico = least(h.amount_pico,
                   item.uncached::numeric * h.input_micros_per_mtok
                   + item.cached::numeric * h.cached_input_micros_per_mtok
                   + item.output::numeric * h.output_micros_per_mtok)
         WHERE h.id = item.id AND h.state = 'open'
           AND (item.organization IS NULL OR h.organization_id = item.organization)
        RETURNING h.* INTO hold;
        request_id := item.id;
        posted := FOUND;
        IF posted THEN
            closed := closed || hold.id;
            charge_pico := hold.charge_pico;
            cost_pico := billing_record_usage(
                hold, item.uncached, item.cached, item.output, item.finish_reason,
                item.model_served, item.source, item.queue_ms, item.prefill_ms, item.decode_ms);
        ELSE
            charge_pico := coalesce((
                SELECT h.charge_pico FROM billing_hold h WHERE h.id = item.id
                   AND (item.organization IS NULL OR h.organization_id = item.organization)), 0);
            cost_pico := charge_pico;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM billing_release(closed);
END
$$;

-- Close holds whose requests never reached an engine: no event, no charge.
CREATE FUNCTION billing_void_holds(ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    closed uuid[];
BEGIN
    closed := ARRAY(SELECT h.id FROM billing_hold h WHERE h.id = ANY (ids) AND h.state = 'open'
                     ORDER BY h.id FOR NO KEY UPDATE);
    UPDATE billing_hold SET state = 'voided', closed_at = now() WHERE id = ANY (closed);
    PERFORM billing_release(closed);
END
$$;

-- Say that the requests of these holds are still alive. Rows in use by a settle are left alone.
CREATE FUNCTION billing_renew_holds(ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    UPDATE billing_hold SET renewed_at = now()
     WHERE id IN (SELECT h.id FROM billing_hold h WHERE h.id = ANY (ids) AND h.state = 'open'
                   ORDER BY h.id FOR NO KEY UPDATE SKIP LOCKED)
$$;

-- Void holds that nobody renewed for `quiet`, each with a zero-charge estimated event. Holds in
-- somebody's hands are skipped, so sweeps at once share the work; there is no lock around a sweep
-- that somebody could keep it out with.
CREATE FUNCTION billing_sweep_holds(quiet interval, holds_max int) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    hold billing_hold;
    closed uuid[];
BEGIN
    closed := ARRAY(SELECT h.id FROM billing_hold h
                     WHERE h.state = 'open' AND h.renewed_at < now() - quiet
                     ORDER BY h.id LIMIT holds_max FOR NO KEY UPDATE SKIP LOCKED);
    FOR hold IN
        UPDATE billing_hold h SET state = 'voided', closed_at = now()
         WHERE h.id = ANY (closed) RETURNING h.*
    LOOP
        PERFORM billing_record_usage(hold, 0, 0, 0, 'lost', '', 'estimated', 0, 0, 0);
    END LOOP;
    PERFORM billing_release(closed);
    RETURN QUERY SELECT unnest(closed);
END
$$;

ALTER FUNCTION billing_settle_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_void_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_renew_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_sweep_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_release OWNER TO headrace_definer;
ALTER FUNCTION billing_record_usage OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_settle_holds, billing_void_holds, billing_renew_holds, billing_sweep_holds,
    billing_release, billing_record_usage
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_settle_holds, billing_void_holds, billing_renew_holds
    TO headrace_app, headrace_housekeeper;
GRANT EXECUTE ON FUNCTION
    billing_sweep_holds
    TO headrace_housekeeper;
