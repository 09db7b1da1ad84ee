-- The ways out of an open hold, with quotas. Run once by migration 0004: a change is a new file in
-- a new migration. What 0002_close_holds.sql says of locks and of exactly-once holds on.

DROP FUNCTION billing_release, billing_record_usage;

-- Give back what closed holds reserved and take what they cost: counters, locked in order, then
-- accounts. A counter that is not there belongs to a window from before its policy.
CREATE FUNCTION billing_release(closed uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    delta record;
BEGIN
    FOR delta IN
        WITH moved AS MATERIALIZED (
            SELECT p.id AS policy_id, billing_quota_subject(p, h.end_user) AS subject,
                   date_trunc(p.period, h.created_at, p.time_zone) AS window_start,
                   p.limit_amount,
                   sum(billing_quota_reserved(p, h.prompt_tokens, h.output_tokens_max,
                                              h.amount_pico)) AS reserved,
                   coalesce(sum(billing_quota_used(p, h.uncached_input_tokens,
                                                   h.cached_input_tokens, h.output_tokens,
                                                   h.charge_pico))
                            FILTER (WHERE h.state = 'posted'), 0) AS used
              FROM billing_hold h
              JOIN billing_quota_policy p
                ON p.organization_id = h.organization_id AND p.lifted_at IS NULL
               AND billing_quota_covers(p, h.project_id, h.key_id, h.end_user)
             WHERE h.id = ANY (closed)
             GROUP BY p.id, 2, 3
        ), locked AS MATERIALIZED (
            SELECT m.* FROM moved m JOIN billing_quota_counter c
                ON (c.policy_id, c.subject, c.window_start)
                 = (m.policy_id, m.subject, m.window_start)
             ORDER BY c.policy_id, c.subject, c.window_start FOR NO KEY UPDATE OF c
        )
        UPDATE billing_quota_counter c
           SET held_amount = c.held_amount - l.reserved, used_amount = c.used_amount + l.used
          FROM locked l
         WHERE (c.policy_id, c.subject, c.window_start)
             = (l.policy_id, l.subject, l.window_start)
        RETURNING l.policy_id, l.subject, l.window_start,
                  l.used > 0 AND c.used_amount * 2 >= l.limit_amount AS is_nearing
    LOOP
        IF delta.is_nearing THEN
            PERFORM billing_announce_thresholds(
                delta.policy_id, delta.subject, delta.window_start);
        END IF;
    END LOOP;
    FOR delta IN
        SELECT account_id AS account, sum(amount_pico) AS amount, sum(charge_pico) AS charge,
               min(quota_version) AS version
          FROM billing_hold WHERE id = ANY (closed) GROUP BY account_id ORDER BY account_id
    LOOP
        UPDATE billing_account
           SET held_pico = held_pico - delta.amount, posted_pico = posted_pico - delta.charge
         WHERE ledger_account_id = delta.account AND quota_version = delta.version;
        IF NOT FOUND THEN
            PERFORM billing_check_quota_version(delta.account, delta.version);
        END IF;
    END LOOP;
END
$$;

-- Write a closed hold's one usage event, queue it for the rollups, and its balanced ledger
-- transaction, which exists also when the charge is 0. What the hold did not cover is written off,
-- never taken from the balance.
CREATE FUNCTION billing_record_usage(
    hold billing_hold, finish_reason text, model_served text, source text, queue_ms bigint,
    prefill_ms bigint, decode_ms bigint
) RETURNS numeric
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid := uuidv7();
    event billing_usage_event;
    cost numeric := hold.uncached_input_tokens::numeric * hold.input_micros_per_mtok
        + hold.cached_input_tokens::numeric * hold.cached_input_micros_per_mtok
        + hold.output_tokens::numeric * hold.output_micros_per_mtok;
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
        cost_pico, charge_pico, finish_reason, source, queue_ms, prefill_ms, decode_ms,
        end_user, tags)
    VALUES (
        hold.closed_at, hold.id, hold.organization_id, hold.project_id, hold.key_id, tx,
        hold.created_at, hold.tier, hold.currency, hold.model_asked, model_served,
        hold.uncached_input_tokens, hold.cached_input_tokens, hold.output_tokens,
        hold.input_price_id, hold.cached_input_price_id, hold.output_price_id,
        hold.input_micros_per_mtok, hold.cached_input_micros_per_mtok,
        hold.output_micros_per_mtok, cost, hold.charge_pico, finish_reason, source, queue_ms,
        prefill_ms, decode_ms, hold.end_user, hold.tags)
    RETURNING * INTO event;
    PERFORM billing_enqueue_usage(event);
    RETURN cost;
END
$$;

-- Close each open hold with what its request used. The guarded UPDATE out of `open` is the
-- exactly-once gate: replays answer posted = false and the earlier charge, unknown ids 0. The
-- version is read before the policies are, so that a change in between shows.
CREATE OR REPLACE FUNCTION billing_settle_holds(items jsonb)
RETURNS TABLE (request_id uuid, posted boolean, charge_pico numeric, cost_pico numeric)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
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
               uncached_input_tokens = item.uncached, cached_input_tokens = item.cached,
               output_tokens = item.output, quota_version = a.quota_version,
               charge_pico = least(h.amount_pico,
                   item.uncached::numeric * h.input_micros_per_mtok
                   + item.cached::numeric * h.cached_input_micros_per_mtok
                   + item.output::numeric * h.output_micros_per_mtok)
          FROM billing_account a
         WHERE h.id = item.id AND h.state = 'open' AND a.ledger_account_id = h.account_id
           AND (item.organization IS NULL OR h.organization_id = item.organization)
        RETURNING h.* INTO hold;
        request_id := item.id;
        posted := FOUND;
        IF posted THEN
            closed := closed || hold.id;
            charge_pico := hold.charge_pico;
            cost_pico := billing_record_usage(
                hold, item.finish_reason, item.model_served, item.source, item.queue_ms,
                item.prefill_ms, item.decode_ms);
        ELSE
            charge_pico := coalesce((
                SELECT h.charge_pico FROM billing_hold h WHERE h.id = item.id
                   AND (item.organization IS NULL OR h.organization_id = item.organization)), 0);
            cost_pico := charge_pico;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF closed <> '{}' THEN
        PERFORM billing_release(closed);
    END IF;
END
$$;

-- Close holds whose requests never reached an engine: no event, no charge.
CREATE OR REPLACE FUNCTION billing_void_holds(ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    closed uuid[];
BEGIN
    closed := ARRAY(SELECT h.id FROM billing_hold h WHERE h.id = ANY (ids) AND h.state = 'open'
                     ORDER BY h.id FOR NO KEY UPDATE);
    UPDATE billing_hold h
       SET state = 'voided', closed_at = now(), quota_version = a.quota_version
      FROM billing_account a
     WHERE h.id = ANY (closed) AND a.ledger_account_id = h.account_id;
    PERFORM billing_release(closed);
END
$$;

-- Void these open holds, which the caller has locked, each with a zero-charge estimated event.
CREATE FUNCTION billing_lose_holds(ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    hold billing_hold;
BEGIN
    FOR hold IN
        UPDATE billing_hold h
           SET state = 'voided', closed_at = now(), quota_version = a.quota_version
          FROM billing_account a
         WHERE h.id = ANY (ids) AND a.ledger_account_id = h.account_id
        RETURNING h.*
    LOOP
        PERFORM billing_record_usage(hold, 'lost', '', 'estimated', 0, 0, 0);
    END LOOP;
    PERFORM billing_release(ids);
END
$$;

-- Lose holds that nobody renewed for `quiet`: their ids, with what keeps one from being closed, or
-- ''. Holds in somebody's hands are skipped, so sweeps at once share the work; there is no lock
-- around a sweep that somebody could keep it out with. One that its own books keep open stays so,
-- stops no other, and is tried again after another `quiet`.
DROP FUNCTION billing_sweep_holds;
CREATE FUNCTION billing_sweep_holds(quiet interval, holds_max int)
RETURNS TABLE (request_id uuid, fault text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    silent uuid[];
BEGIN
    silent := ARRAY(SELECT h.id FROM billing_hold h
                     WHERE h.state = 'open' AND h.renewed_at < now() - quiet
                     ORDER BY h.id LIMIT holds_max FOR NO KEY UPDATE SKIP LOCKED);
    BEGIN
        PERFORM billing_lose_holds(silent);
        RETURN QUERY SELECT s.id, '' FROM unnest(silent) AS s (id);
        RETURN;
    EXCEPTION WHEN integrity_constraint_violation OR data_exception THEN
        NULL;  -- one of them spoils it for all: one by one
    END;
    -- In the order of locks, before the first of them locks its account.
    PERFORM FROM billing_quota_demand(silent) d JOIN billing_quota_counter c
              ON (c.policy_id, c.subject, c.window_start)
               = (d.policy_id, d.subject, d.window_start)
      ORDER BY c.policy_id, c.subject, c.window_start FOR NO KEY UPDATE OF c;
    PERFORM FROM billing_account a
      WHERE a.ledger_account_id IN (SELECT h.account_id FROM billing_hold h
                                     WHERE h.id = ANY (silent))
      ORDER BY a.ledger_account_id FOR NO KEY UPDATE;
    FOREACH request_id IN ARRAY silent LOOP
        fault := '';
        BEGIN
            PERFORM billing_lose_holds(ARRAY[request_id]);
        EXCEPTION WHEN integrity_constraint_violation OR data_exception THEN
            fault := sqlerrm;
            RAISE WARNING 'hold % stays open: %', request_id, fault;
            UPDATE billing_hold h SET renewed_at = now() WHERE h.id = request_id;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

ALTER FUNCTION billing_sweep_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_lose_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_release OWNER TO headrace_definer;
ALTER FUNCTION billing_record_usage OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_sweep_holds, billing_lose_holds, billing_release, billing_record_usage FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_sweep_holds TO headrace_housekeeper;
