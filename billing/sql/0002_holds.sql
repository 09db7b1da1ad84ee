-- Money on the hot path: quote, hold, settle, void, renew, sweep, grant. Run once by migration
-- 0002: a change is a new file in a new migration.
--
-- All take lists and serve several tenants at once, so they run as a role that bypasses the
-- policies, and everything they write derives from a row of the tenant that the item names.
-- Locks are taken in one order everywhere: holds by id, quota counters by policy, accounts by id;
-- the account's UPDATE, the hot row, comes last.

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

-- Reserve money and quota for each item, or say why not; refused items leave nothing behind and do
-- not hinder the others. '' is no refusal.
CREATE FUNCTION billing_take_holds(items jsonb) RETURNS TABLE (request_id uuid, refusal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    item record;
    one record;
    why text;
    refusals jsonb := '{}';
    asked uuid[] := ARRAY(
        SELECT (i ->> 'id')::uuid FROM jsonb_array_elements(items) WITH ORDINALITY AS l (i, n)
         ORDER BY n);
    taken uuid[] := '{}';
    refused uuid[] := '{}';
BEGIN
    FOR item IN
        SELECT * FROM jsonb_to_recordset(items) AS i (
            id uuid, organization uuid, project uuid, key uuid, tier text, currency text,
            model_asked text, input_price uuid, cached_input_price uuid, output_price uuid,
            input_micros bigint, cached_input_micros bigint, output_micros bigint,
            prompt_tokens bigint, output_tokens_max bigint, amount numeric)
         ORDER BY i.id
    LOOP
        why := tenants_key_refusal(item.organization, item.project, item.key);
        IF why = '' THEN
            INSERT INTO billing_hold (
                id, organization_id, project_id, key_id, account_id, tier, currency, model_asked,
                input_price_id, cached_input_price_id, output_price_id, input_micros_per_mtok,
                cached_input_micros_per_mtok, output_micros_per_mtok, prompt_tokens,
                output_tokens_max, amount_pico, quota_policy_id, quota_window_start)
            SELECT item.id, item.organization, item.project, item.key, a.ledger_account_id,
                   item.tier, item.currency, item.model_asked, item.input_price,
                   item.cached_input_price, item.output_price, item.input_micros,
                   item.cached_input_micros, item.output_micros, item.prompt_tokens,
                   item.output_tokens_max, item.amount, q.id,
                   CASE WHEN q.id IS NOT NULL THEN date_trunc('day', now(), 'UTC') END
              FROM billing_account a
              LEFT JOIN billing_quota_policy q
                ON q.organization_id = a.organization_id AND q.daily_tokens_max IS NOT NULL
             WHERE a.organization_id = item.organization AND a.currency = item.currency
               -- Spares a hopeless item its writes; the UPDATE below is what decides.
               AND a.posted_pico - a.held_pico - item.amount >= a.floor_pico
            ON CONFLICT (id) DO NOTHING;
            IF FOUND THEN
                taken := taken || item.id;
            ELSIF EXISTS (SELECT FROM billing_hold h WHERE h.id = item.id) THEN
                why := 'duplicate';
            ELSE
                why := 'insufficient_quota';
            END IF;
        END IF;
        refusals := refusals || jsonb_build_object(item.id, why);
    END LOOP;

    FOR item IN
        SELECT h.quota_policy_id AS policy, h.quota_window_start AS window_start,
               h.organization_id AS organization, q.daily_tokens_max AS tokens_max,
               sum(h.prompt_tokens + h.output_tokens_max) AS tokens
          FROM billing_hold h JOIN billing_quota_policy q ON q.id = h.quota_policy_id
         WHERE h.id = ANY (taken)
         GROUP BY h.quota_policy_id, h.quota_window_start, h.organization_id, q.daily_tokens_max
         ORDER BY h.quota_policy_id, h.quota_window_start
    LOOP
        UPDATE billing_quota_counter c SET held_tokens = held_tokens + item.tokens
         WHERE policy_id = item.policy AND window_start = item.window_start
           AND used_tokens + held_tokens + item.tokens <= item.tokens_max;
        CONTINUE WHEN FOUND;
        -- The first of this window, or not all fit: one by one, in the order asked.
        INSERT INTO billing_quota_counter
            (policy_id, window_start, organization_id, used_tokens, held_tokens)
        VALUES (item.policy, item.window_start, item.organization, 0, 0)
        ON CONFLICT DO NOTHING;
        FOR one IN
            SELECT h.id, h.prompt_tokens + h.output_tokens_max AS tokens FROM billing_hold h
             WHERE h.id = ANY (taken) AND h.quota_policy_id = item.policy
             ORDER BY array_position(asked, h.id)
        LOOP
            UPDATE billing_quota_counter SET held_tokens = held_tokens + one.tokens
             WHERE policy_id = item.policy AND window_start = item.window_start
               AND used_tokens + held_tokens + one.tokens <= item.tokens_max;
            IF NOT FOUND THEN
                refused := refused || one.id;
                refusals := refusals || jsonb_build_object(one.id, 'daily_tokens_exceeded');
            END IF;
        END LOOP;
    END LOOP;
    IF refused <> '{}' THEN
        DELETE FROM billing_hold h WHERE h.id = ANY (refused);
        taken := ARRAY(SELECT t FROM unnest(taken) AS t WHERE t <> ALL (refused));
        refused := '{}';
    END IF;

    FOR item IN
        SELECT h.account_id AS account, sum(h.amount_pico) AS amount FROM billing_hold h
         WHERE h.id = ANY (taken) GROUP BY h.account_id ORDER BY h.account_id
    LOOP
        UPDATE billing_account SET held_pico = held_pico + item.amount
         WHERE ledger_account_id = item.account
           AND posted_pico - held_pico - item.amount >= floor_pico;
        CONTINUE WHEN FOUND;
        FOR one IN
            SELECT h.id, h.amount_pico AS amount FROM billing_hold h
             WHERE h.id = ANY (taken) AND h.account_id = item.account
             ORDER BY array_position(asked, h.id)
        LOOP
            UPDATE billing_account SET held_pico = held_pico + one.amount
             WHERE ledger_account_id = item.account
               AND posted_pico - held_pico - one.amount >= floor_pico;
            IF NOT FOUND THEN
                refused := refused || one.id;
                refusals := refusals || jsonb_build_object(one.id, 'insufficient_quota');
            END IF;
        END LOOP;
    END LOOP;
    IF refused <> '{}' THEN
        -- Locked above, by this transaction: no new lock, so no deadlock.
        UPDATE billing_quota_counter c SET held_tokens = c.held_tokens - d.tokens
          FROM (SELECT h.quota_policy_id AS policy, h.quota_window_start AS window_start,
                       sum(h.prompt_tokens + h.output_tokens_max) AS tokens
                  FROM billing_hold h WHERE h.id = ANY (refused) GROUP BY 1, 2) d
         WHERE c.policy_id = d.policy AND c.window_start = d.window_start;
        DELETE FROM billing_hold h WHERE h.id = ANY (refused);
    END IF;

    RETURN QUERY SELECT a.id, refusals ->> a.id::text
                   FROM unnest(asked) WITH ORDINALITY AS a (id, n) ORDER BY a.n;
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

-- Void holds that nobody renewed for `quiet`, each with a zero-charge estimated event. One sweeper
-- at a time; holds in somebody's hands are skipped.
CREATE FUNCTION billing_sweep_holds(quiet interval, holds_max int) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    hold billing_hold;
    closed uuid[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('billing_sweep_holds', 0)) THEN
        RETURN;
    END IF;
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
ALTER FUNCTION billing_release OWNER TO headrace_definer;
ALTER FUNCTION billing_record_usage OWNER TO headrace_definer;
ALTER FUNCTION billing_take_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_settle_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_void_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_renew_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_sweep_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_grant_credit OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_quote, billing_release, billing_record_usage, billing_take_holds,
    billing_settle_holds, billing_void_holds, billing_renew_holds, billing_sweep_holds,
    billing_grant_credit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_quote, billing_take_holds, billing_settle_holds,
    billing_void_holds, billing_renew_holds TO headrace_app, headrace_housekeeper;
GRANT EXECUTE ON FUNCTION billing_sweep_holds, billing_grant_credit TO headrace_housekeeper;
