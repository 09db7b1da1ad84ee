-- The hold: money and daily tokens reserved for a list of requests, in one transaction. Run once by
-- migration 0002: a change is a new file in a new migration.
--
-- It serves several tenants at once, so it runs as a role that bypasses the policies, and takes
-- nobody's word: key and project are rows of the tenant that the item names, prices are rows of the
-- catalog, and the amount follows from those. Locks are taken in one order everywhere: holds by id,
-- quota counters by policy, accounts by id; the account's UPDATE, the hot row, comes last.

-- One item of the list, as billing/holds.py sends it.
CREATE TYPE billing_hold_item AS (
    id uuid, organization uuid, project uuid, key uuid, tier text, model_asked text,
    input_price uuid, cached_input_price uuid, output_price uuid,
    prompt_tokens bigint, output_tokens_max bigint, amount numeric
);

-- Write one hold; '' or why not. Money and tokens are not yet reserved.
CREATE FUNCTION billing_insert_hold(item billing_hold_item) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    refusal text := tenants_key_refusal(item.organization, item.project, item.key);
    -- A quote is remembered for a moment: so long its prices are honoured after they have changed.
    recent tstzrange := tstzrange(now() - interval '10 seconds', now(), '[]');
    price record;
BEGIN
    IF refusal <> '' THEN
        RETURN refusal;
    END IF;
    SELECT input.currency, input.price_micros_per_mtok AS input,
           cached.price_micros_per_mtok AS cached, output.price_micros_per_mtok AS output
      INTO price
      FROM billing_price input, billing_price cached, billing_price output
     WHERE input.id = item.input_price AND input.token_class = 'input'
       AND input.tier = item.tier AND input.valid && recent
       AND output.id = item.output_price AND output.token_class = 'output'
       AND (output.offer_id, output.tier, output.currency)
         = (input.offer_id, input.tier, input.currency) AND output.valid && recent
       AND cached.id = item.cached_input_price
       AND (cached.offer_id, cached.tier, cached.currency)
         = (input.offer_id, input.tier, input.currency) AND cached.valid && recent
       AND (cached.token_class = 'cached_input'
            -- The input price stands in only where cached input has none of its own.
            OR cached.id = input.id AND NOT EXISTS (
                SELECT FROM billing_price own
                 WHERE (own.offer_id, own.tier, own.currency)
                     = (input.offer_id, input.tier, input.currency)
                   AND own.token_class = 'cached_input' AND own.valid @> recent));
    -- The caller has estimated the amount from its quote (billing/pricing.py); a quote that says
    -- other prices than these rows shows in it.
    IF NOT FOUND OR item.amount IS DISTINCT FROM
        item.prompt_tokens::numeric * greatest(price.input, price.cached)
        + item.output_tokens_max::numeric * price.output
    THEN
        RETURN 'stale_quote';
    END IF;
    INSERT INTO billing_hold (
        id, organization_id, project_id, key_id, account_id, tier, currency, model_asked,
        input_price_id, cached_input_price_id, output_price_id, input_micros_per_mtok,
        cached_input_micros_per_mtok, output_micros_per_mtok, prompt_tokens, output_tokens_max,
        amount_pico, quota_policy_id, quota_window_start)
    SELECT item.id, item.organization, item.project, item.key, a.ledger_account_id, item.tier,
           price.currency, item.model_asked, item.input_price, item.cached_input_price,
           item.output_price, price.input, price.cached, price.output,
           item.prompt_tokens, item.output_tokens_max, item.amount, q.id,
           CASE WHEN q.id IS NOT NULL THEN date_trunc('day', now(), 'UTC') END
      FROM billing_account a
      LEFT JOIN billing_quota_policy q
        ON q.organization_id = a.organization_id AND q.daily_tokens_max IS NOT NULL
     WHERE a.organization_id = item.organization AND a.currency = price.currency
       -- Spares a hopeless item its writes; billing_reserve_money is what decides.
       AND a.posted_pico - a.held_pico - item.amount >= a.floor_pico
    ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
        RETURN '';
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM billing_hold h WHERE h.id = item.id)
                THEN 'duplicate' ELSE 'insufficient_quota' END;
END
$$;

-- Count the tokens of these holds against their windows; returns the ids that do not fit. Where not
-- all of a window fit, they are taken one by one in the order given.
CREATE FUNCTION billing_reserve_tokens(ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    total record;
    one record;
    refused uuid[] := '{}';
BEGIN
    FOR total IN
        SELECT q.id AS policy, h.quota_window_start AS window_start, q.organization_id,
               q.daily_tokens_max AS tokens_max,
               sum(h.prompt_tokens + h.output_tokens_max) AS tokens
          FROM billing_hold h JOIN billing_quota_policy q ON q.id = h.quota_policy_id
         WHERE h.id = ANY (ids)
         GROUP BY q.id, h.quota_window_start ORDER BY q.id, h.quota_window_start
    LOOP
        UPDATE billing_quota_counter SET held_tokens = held_tokens + total.tokens
         WHERE policy_id = total.policy AND window_start = total.window_start
           AND used_tokens + held_tokens + total.tokens <= total.tokens_max;
        CONTINUE WHEN FOUND;
        INSERT INTO billing_quota_counter
            (policy_id, window_start, organization_id, used_tokens, held_tokens)
        VALUES (total.policy, total.window_start, total.organization_id, 0, 0)
        ON CONFLICT DO NOTHING;
        FOR one IN
            SELECT h.id, h.prompt_tokens + h.output_tokens_max AS tokens FROM billing_hold h
             WHERE h.id = ANY (ids) AND h.quota_policy_id = total.policy
             ORDER BY array_position(ids, h.id)
        LOOP
            UPDATE billing_quota_counter SET held_tokens = held_tokens + one.tokens
             WHERE policy_id = total.policy AND window_start = total.window_start
               AND used_tokens + held_tokens + one.tokens <= total.tokens_max;
            IF NOT FOUND THEN
                refused := refused || one.id;
            END IF;
        END LOOP;
    END LOOP;
    DELETE FROM billing_hold WHERE id = ANY (refused);
    RETURN refused;
END
$$;

-- Take the amounts of these holds from their accounts; returns the ids that the balance does not
-- cover, taken one by one in the order given where not all fit.
CREATE FUNCTION billing_reserve_money(ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    total record;
    one record;
    refused uuid[] := '{}';
BEGIN
    FOR total IN
        SELECT account_id AS account, sum(amount_pico) AS amount FROM billing_hold
         WHERE id = ANY (ids) GROUP BY account_id ORDER BY account_id
    LOOP
        UPDATE billing_account SET held_pico = held_pico + total.amount
         WHERE ledger_account_id = total.account
           AND posted_pico - held_pico - total.amount >= floor_pico;
        CONTINUE WHEN FOUND;
        FOR one IN
            SELECT h.id, h.amount_pico AS amount FROM billing_hold h
             WHERE h.id = ANY (ids) AND h.account_id = total.account
             ORDER BY array_position(ids, h.id)
        LOOP
            UPDATE billing_account SET held_pico = held_pico + one.amount
             WHERE ledger_account_id = total.account
               AND posted_pico - held_pico - one.amount >= floor_pico;
            IF NOT FOUND THEN
                refused := refused || one.id;
            END IF;
        END LOOP;
    END LOOP;
    IF refused <> '{}' THEN
        -- This transaction locked the counters before the accounts: no new lock, so no deadlock.
        UPDATE billing_quota_counter c SET held_tokens = c.held_tokens - d.tokens
          FROM (SELECT quota_policy_id AS policy, quota_window_start AS window_start,
                       sum(prompt_tokens + output_tokens_max) AS tokens
                  FROM billing_hold WHERE id = ANY (refused) GROUP BY 1, 2) d
         WHERE c.policy_id = d.policy AND c.window_start = d.window_start;
        DELETE FROM billing_hold WHERE id = ANY (refused);
    END IF;
    RETURN refused;
END
$$;

-- Reserve each item, or say why not ('' is no refusal), in the order asked. Refused items leave
-- nothing behind and do not hinder the others.
CREATE FUNCTION billing_take_holds(items jsonb) RETURNS TABLE (request_id uuid, refusal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    item billing_hold_item;
    why text;
    reasons jsonb := '{}';
    asked uuid[] := ARRAY(
        SELECT (i ->> 'id')::uuid FROM jsonb_array_elements(items) WITH ORDINALITY AS l (i, n)
         ORDER BY n);
    taken uuid[];
    unfit uuid[];
    unpaid uuid[];
BEGIN
    FOR item IN SELECT * FROM jsonb_populate_recordset(NULL::billing_hold_item, items) i
                 ORDER BY i.id
    LOOP
        why := billing_insert_hold(item);
        IF why <> '' THEN
            reasons := reasons || jsonb_build_object(item.id, why);
        END IF;
    END LOOP;
    taken := ARRAY(SELECT a.id FROM unnest(asked) WITH ORDINALITY AS a (id, n)
                    WHERE NOT reasons ? a.id::text ORDER BY a.n);
    unfit := billing_reserve_tokens(taken);
    taken := ARRAY(SELECT t.id FROM unnest(taken) WITH ORDINALITY AS t (id, n)
                    WHERE t.id <> ALL (unfit) ORDER BY t.n);
    unpaid := billing_reserve_money(taken);
    RETURN QUERY
        SELECT a.id, CASE WHEN a.id = ANY (unfit) THEN 'daily_tokens_exceeded'
                          WHEN a.id = ANY (unpaid) THEN 'insufficient_quota'
                          ELSE coalesce(reasons ->> a.id::text, '') END
          FROM unnest(asked) WITH ORDINALITY AS a (id, n) ORDER BY a.n;
END
$$;

ALTER FUNCTION billing_take_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_insert_hold OWNER TO headrace_definer;
ALTER FUNCTION billing_reserve_tokens OWNER TO headrace_definer;
ALTER FUNCTION billing_reserve_money OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_take_holds, billing_insert_hold, billing_reserve_tokens, billing_reserve_money
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_take_holds
    TO headrace_app, headrace_housekeeper;
ALTER TYPE billing_hold_item OWNER TO headrace_definer;
