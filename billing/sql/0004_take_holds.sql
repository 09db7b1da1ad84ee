-- The hold, with quotas: money and quota reserved for a list of requests, in one transaction. Run
-- once by migration 0004: a change is a new file in a new migration. What 0002_take_holds.sql says
-- of locks and trust holds on.

ALTER TYPE billing_hold_item ADD ATTRIBUTE end_user text, ADD ATTRIBUTE tags jsonb;
DROP FUNCTION billing_take_holds, billing_reserve_tokens;

-- Write one hold; '' or why not. Money and quota are not yet reserved. Of the tags, those that the
-- organization reports costs by are kept.
CREATE OR REPLACE FUNCTION billing_insert_hold(item billing_hold_item) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    refusal text := tenants_key_refusal(item.organization, item.project, item.key);
    price record;
    kept jsonb := '{}';
BEGIN
    IF refusal <> '' THEN
        RETURN refusal;
    END IF;
    SELECT * INTO price FROM billing_held_prices(
        item.organization, item.tier, item.input_price, item.cached_input_price,
        item.output_price);
    -- The caller has estimated the amount from its quote (billing/pricing.py); a quote that says
    -- other prices than these rows shows in it.
    IF NOT FOUND OR item.amount IS DISTINCT FROM
        item.prompt_tokens::numeric * greatest(price.input, price.cached)
        + item.output_tokens_max::numeric * price.output
    THEN
        RETURN 'stale_quote';
    END IF;
    IF item.tags <> '{}' THEN
        kept := (SELECT coalesce(jsonb_object_agg(t.key, t.value), '{}')
                   FROM jsonb_each(item.tags) t JOIN tenants_organization o
                     ON o.id = item.organization AND t.key = ANY (o.cost_tags));
    END IF;
    INSERT INTO billing_hold (
        id, organization_id, project_id, key_id, account_id, tier, currency, model_asked,
        input_price_id, cached_input_price_id, output_price_id, input_micros_per_mtok,
        cached_input_micros_per_mtok, output_micros_per_mtok, prompt_tokens, output_tokens_max,
        amount_pico, end_user, tags, quota_version, created_at)
    SELECT item.id, item.organization, item.project, item.key, a.ledger_account_id, item.tier,
           price.currency, item.model_asked, item.input_price, item.cached_input_price,
           item.output_price, price.input, price.cached, price.output,
           item.prompt_tokens, item.output_tokens_max, item.amount, item.end_user, kept,
           a.quota_version, now()
      FROM billing_account a
     WHERE a.organization_id = item.organization AND a.currency = price.currency
       -- Spares a hopeless item its writes; billing_reserve_money is what decides.
       AND a.posted_pico - a.held_pico - a.leaving_pico - item.amount >= a.floor_pico
    ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
        RETURN '';
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM billing_hold h WHERE h.id = item.id)
                THEN 'duplicate' ELSE 'insufficient_quota' END;
END
$$;

-- What these holds reserve of each counter. To be inlined, so without a search path of its own.
CREATE FUNCTION billing_quota_demand(ids uuid[])
RETURNS TABLE (
    policy_id uuid, subject text, window_start timestamptz, organization_id uuid, amount numeric
)
LANGUAGE sql STABLE
AS $$
    SELECT p.id, billing_quota_subject(p, h.end_user),
           date_trunc(p.period, h.created_at, p.time_zone), p.organization_id,
           sum(billing_quota_reserved(p, h.prompt_tokens, h.output_tokens_max, h.amount_pico))
      FROM billing_hold h
      JOIN billing_quota_policy p
        ON p.organization_id = h.organization_id AND p.lifted_at IS NULL
       AND billing_quota_covers(p, h.project_id, h.key_id, h.end_user)
     WHERE h.id = ANY (ids)
     GROUP BY p.id, 2, 3
$$;

-- Give back what these holds reserved of their counters, which this transaction has locked.
CREATE FUNCTION billing_return_quotas(ids uuid[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp
AS $$
    UPDATE billing_quota_counter c SET held_amount = c.held_amount - d.amount
      FROM billing_quota_demand(ids) d
     WHERE (c.policy_id, c.subject, c.window_start) = (d.policy_id, d.subject, d.window_start)
$$;

-- Count these holds against all their windows, or none of them against any: null, or the policy
-- that stands in the way, of several the one that does so longest. Counters are locked in order.
CREATE FUNCTION billing_try_quotas(ids uuid[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    in_the_way jsonb;
BEGIN
    WITH counted AS (
        INSERT INTO billing_quota_counter AS c
            (policy_id, subject, window_start, organization_id, used_amount, held_amount)
        SELECT d.policy_id, d.subject, d.window_start, d.organization_id, 0, d.amount
          FROM billing_quota_demand(ids) d ORDER BY 1, 2, 3
        ON CONFLICT (policy_id, subject, window_start)
        DO UPDATE SET held_amount = c.held_amount + excluded.held_amount
        RETURNING c.policy_id, c.subject, c.window_start, c.used_amount, c.held_amount)
    SELECT billing_quota_told(p, c.subject, c.window_start, c.used_amount) INTO in_the_way
      FROM counted c JOIN billing_quota_policy p ON p.id = c.policy_id
     WHERE p.is_hard AND c.used_amount + c.held_amount > p.limit_amount
       AND NOT billing_quota_overridden(p, c.subject)
     ORDER BY billing_window_end(c.window_start, p.period, p.time_zone) DESC, p.id LIMIT 1;
    IF in_the_way IS NOT NULL THEN
        PERFORM billing_return_quotas(ids);
    END IF;
    RETURN in_the_way;
END
$$;

-- Reserve the quota of these holds; returns what stands in the way of which, by id. Where not all
-- fit, they are taken one by one in the order given.
CREATE FUNCTION billing_reserve_quotas(ids uuid[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    in_the_way jsonb := billing_try_quotas(ids);
    refused jsonb := '{}';
    one uuid;
BEGIN
    IF in_the_way IS NULL THEN
        RETURN refused;
    END IF;
    IF cardinality(ids) = 1 THEN
        refused := jsonb_build_object(ids[1], in_the_way);
    ELSE
        FOREACH one IN ARRAY ids LOOP
            in_the_way := billing_try_quotas(ARRAY[one]);
            IF in_the_way IS NOT NULL THEN
                refused := refused || jsonb_build_object(one, in_the_way);
            END IF;
        END LOOP;
    END IF;
    DELETE FROM billing_hold h WHERE h.id = ANY (ids) AND refused ? h.id::text;
    RETURN refused;
END
$$;

-- Raise a serialization failure, which is tried again, when the account's policies are not those
-- that this transaction counted by.
CREATE FUNCTION billing_check_quota_version(account uuid, version bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM billing_account a
                WHERE a.ledger_account_id = account AND a.quota_version <> version)
    THEN
        RAISE EXCEPTION 'quotas were set meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- Take the amounts of these holds from their accounts; returns the ids that the balance does not
-- cover, taken one by one in the order given where not all fit.
CREATE OR REPLACE FUNCTION billing_reserve_money(ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    total record;
    one record;
    refused uuid[] := '{}';
BEGIN
    FOR total IN
        SELECT account_id AS account, sum(amount_pico) AS amount, min(quota_version) AS version
          FROM billing_hold WHERE id = ANY (ids) GROUP BY account_id ORDER BY account_id
    LOOP
        UPDATE billing_account SET held_pico = held_pico + total.amount
         WHERE ledger_account_id = total.account AND quota_version = total.version
           AND posted_pico - held_pico - leaving_pico - total.amount >= floor_pico;
        CONTINUE WHEN FOUND;
        PERFORM billing_check_quota_version(total.account, total.version);
        FOR one IN
            SELECT h.id, h.amount_pico AS amount FROM billing_hold h
             WHERE h.id = ANY (ids) AND h.account_id = total.account
             ORDER BY array_position(ids, h.id)
        LOOP
            UPDATE billing_account SET held_pico = held_pico + one.amount
             WHERE ledger_account_id = total.account AND quota_version = total.version
               AND posted_pico - held_pico - leaving_pico - one.amount >= floor_pico;
            IF NOT FOUND THEN
                refused := refused || one.id;
            END IF;
        END LOOP;
        -- Between the two looks above, nothing has locked the account.
        PERFORM billing_check_quota_version(total.account, total.version);
    END LOOP;
    IF refused <> '{}' THEN
        -- This transaction locked the counters before the accounts: no new lock, so no deadlock.
        PERFORM billing_return_quotas(refused);
        DELETE FROM billing_hold WHERE id = ANY (refused);
    END IF;
    RETURN refused;
END
$$;

-- Reserve each item, or say why not ('' is no refusal), in the order asked; `quota` is the policy
-- in the way, where one is. Refused items leave nothing behind and do not hinder the others.
--
-- Plans are made once a session, perhaps when the tables are small and nobody has counted them yet:
-- everything here is looked up by a key, so no plan may settle for reading a whole table.
CREATE FUNCTION billing_take_holds(items jsonb)
RETURNS TABLE (request_id uuid, refusal text, quota jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    item billing_hold_item;
    why text;
    reasons jsonb := '{}';
    asked uuid[] := ARRAY(
        SELECT (i ->> 'id')::uuid FROM jsonb_array_elements(items) WITH ORDINALITY AS l (i, n)
         ORDER BY n);
    taken uuid[];
    unfit jsonb := '{}';
    unpaid uuid[] := '{}';
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
    IF taken <> '{}' THEN
        unfit := billing_reserve_quotas(taken);
        taken := ARRAY(SELECT t.id FROM unnest(taken) WITH ORDINALITY AS t (id, n)
                        WHERE NOT unfit ? t.id::text ORDER BY t.n);
        unpaid := billing_reserve_money(taken);
    END IF;
    RETURN QUERY
        SELECT a.id, CASE WHEN unfit ? a.id::text THEN 'quota_exceeded'
                          WHEN a.id = ANY (unpaid) THEN 'insufficient_quota'
                          ELSE coalesce(reasons ->> a.id::text, '') END,
               unfit -> a.id::text
          FROM unnest(asked) WITH ORDINALITY AS a (id, n) ORDER BY a.n;
END
$$;

ALTER FUNCTION billing_take_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_reserve_quotas OWNER TO headrace_definer;
ALTER FUNCTION billing_try_quotas OWNER TO headrace_definer;
ALTER FUNCTION billing_return_quotas OWNER TO headrace_definer;
ALTER FUNCTION billing_check_quota_version OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_take_holds, billing_reserve_quotas, billing_try_quotas, billing_return_quotas,
    billing_check_quota_version
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_take_holds TO headrace_app, headrace_housekeeper;
