-- Usage by hour and model, without keys, and with what caching saved and how long first tokens took.
-- Run once by migration 0016: a change is a new file in a new migration.
--
-- A fifth of the rows that billing_usage_hour has, or less, for what a console asks at each look.
-- Counted from the same queue in the same transaction. Like the others, without foreign keys.

-- A roll-up of the old kind may be waiting for this: it fails on the new name, is undone, and its
-- events are counted by the next.
LOCK TABLE billing_usage_hour IN SHARE ROW EXCLUSIVE MODE;
ALTER FUNCTION billing_roll_up_tags RENAME TO billing_roll_up_tag_hours;

SELECT tenants_protect('billing_usage_model_hour');
ALTER TABLE billing_usage_model_hour SET (fillfactor = 80);
ALTER TABLE billing_usage_model_hour
    ADD CONSTRAINT billing_first_token_places CHECK (cardinality(first_token_counts) = 64);
GRANT SELECT ON billing_usage_model_hour TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT, UPDATE ON billing_usage_model_hour TO headrace_definer;

-- How long a request waited for its first token; null where it had none, failed by a fault that was
-- not its client's, or nobody told.
CREATE FUNCTION billing_first_token_ms(
    finish_reason text, output_tokens bigint, queue_ms bigint, prefill_ms bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN output_tokens > 0 AND NOT billing_usage_is_error(finish_reason)
            THEN nullif(queue_ms + prefill_ms, 0) END;

-- What caching saved of a request; below zero where a cached token was the dearer one.
CREATE FUNCTION billing_cache_saved(cached bigint, input_micros bigint, cached_micros bigint)
RETURNS numeric
LANGUAGE sql IMMUTABLE
RETURN cached::numeric * (input_micros - cached_micros);

-- The bucket of a duration, from 1: the bounds are those of billing/usage/histograms.py. They never
-- change, or counts by them would not add up.
CREATE FUNCTION billing_latency_place(duration_ms bigint) RETURNS int
LANGUAGE sql IMMUTABLE
RETURN 1 + width_bucket(duration_ms, ARRAY[
    2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 21, 25, 30, 36, 43, 52, 62, 75, 90, 107, 129,
    155, 185, 222, 267, 320, 384, 461, 553, 663, 795, 954, 1145, 1374, 1649, 1979, 2374,
    2849, 3419, 4102, 4923, 5907, 7089, 8506, 10207, 12249, 14698, 17638, 21165, 25398,
    30478, 36573, 43888, 52665, 63198, 75837, 91005, 109206, 131047, 157256, 188707
    ]::bigint[]);

-- Counts by place, the empty ones too.
CREATE FUNCTION billing_counts_by_place(places int[], counts int[]) RETURNS int[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY(SELECT coalesce(counts[array_position(places, n)], 0)
               FROM generate_series(1, 64) AS n ORDER BY n);

CREATE FUNCTION billing_counts_added(counts int[], added int[]) RETURNS int[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY(SELECT a + b FROM unnest(counts, added) WITH ORDINALITY AS u (a, b, n) ORDER BY n);

CREATE FUNCTION billing_roll_up_model_hours(taken billing_usage_delta[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
BEGIN
    WITH placed AS (
        SELECT e.organization_id, date_trunc('hour', e.occurred_at) AS hour, e.project_id,
               e.model_served, e.tier, e.currency,
               billing_latency_place(billing_first_token_ms(
                   e.finish_reason, e.output_tokens, e.queue_ms, e.prefill_ms)) AS place,
               count(*) AS requests,
               count(*) FILTER (WHERE billing_usage_is_error(e.finish_reason)) AS errors,
               sum(e.uncached_input_tokens) AS uncached_input_tokens,
               sum(e.cached_input_tokens) AS cached_input_tokens,
               sum(e.output_tokens) AS output_tokens,
               sum(e.cost_pico) AS cost_pico, sum(e.charge_pico) AS charge_pico,
               sum(billing_cache_saved(e.cached_input_tokens, e.input_micros_per_mtok,
                                       e.cached_input_micros_per_mtok)) AS cache_saved_pico
          FROM unnest(taken) d
          JOIN billing_usage_event e
            ON e.occurred_at = d.occurred_at AND e.request_id = d.request_id
         GROUP BY 1, 2, 3, 4, 5, 6, 7
    )
    INSERT INTO billing_usage_model_hour AS h (
        organization_id, hour, project_id, model_served, tier, currency, requests, errors,
        uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico, charge_pico,
        cache_saved_pico, first_token_counts)
    SELECT organization_id, hour, project_id, model_served, tier, currency, sum(requests),
           sum(errors), sum(uncached_input_tokens), sum(cached_input_tokens), sum(output_tokens),
           sum(cost_pico), sum(charge_pico), sum(cache_saved_pico),
           billing_counts_by_place(
               array_agg(place) FILTER (WHERE place IS NOT NULL),
               array_agg(requests::int) FILTER (WHERE place IS NOT NULL))
      FROM placed GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (organization_id, hour, project_id, model_served, tier, currency)
    DO UPDATE SET requests = h.requests + excluded.requests,
                  errors = h.errors + excluded.errors,
                  uncached_input_tokens = h.uncached_input_tokens + excluded.uncached_input_tokens,
                  cached_input_tokens = h.cached_input_tokens + excluded.cached_input_tokens,
                  output_tokens = h.output_tokens + excluded.output_tokens,
                  cost_pico = h.cost_pico + excluded.cost_pico,
                  charge_pico = h.charge_pico + excluded.charge_pico,
                  cache_saved_pico = h.cache_saved_pico + excluded.cache_saved_pico,
                  first_token_counts =
                      billing_counts_added(h.first_token_counts, excluded.first_token_counts);
END
$$;

-- As in 0005_rollups.sql, and the hours of models.
CREATE OR REPLACE FUNCTION billing_roll_up(events_max int, tag_values_max int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    taken billing_usage_delta[];
BEGIN
    WITH gone AS (
        DELETE FROM billing_usage_delta d
         WHERE d.ctid = ANY (ARRAY(
            SELECT q.ctid FROM billing_usage_delta q LIMIT events_max FOR UPDATE SKIP LOCKED))
        RETURNING d)
    SELECT coalesce(array_agg(d), '{}') INTO taken FROM gone;
    INSERT INTO billing_usage_hour AS h (
        organization_id, hour, project_id, key_id, model_served, tier, currency, is_embedding,
        requests, errors, uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico,
        charge_pico)
    SELECT e.organization_id, date_trunc('hour', e.occurred_at), e.project_id, e.key_id,
           e.model_served, e.tier, e.currency, d.is_embedding,
           count(*), count(*) FILTER (WHERE billing_usage_is_error(e.finish_reason)),
           sum(e.uncached_input_tokens), sum(e.cached_input_tokens), sum(e.output_tokens),
           sum(e.cost_pico), sum(e.charge_pico)
      FROM unnest(taken) d
      JOIN billing_usage_event e
        ON e.occurred_at = d.occurred_at AND e.request_id = d.request_id
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
    ON CONFLICT (organization_id, hour, project_id, key_id, model_served, tier, currency,
                 is_embedding)
    DO UPDATE SET requests = h.requests + excluded.requests,
                  errors = h.errors + excluded.errors,
                  uncached_input_tokens = h.uncached_input_tokens + excluded.uncached_input_tokens,
                  cached_input_tokens = h.cached_input_tokens + excluded.cached_input_tokens,
                  output_tokens = h.output_tokens + excluded.output_tokens,
                  cost_pico = h.cost_pico + excluded.cost_pico,
                  charge_pico = h.charge_pico + excluded.charge_pico;
    PERFORM billing_roll_up_model_hours(taken);
    PERFORM billing_roll_up_tag_hours(taken, tag_values_max);
    RETURN cardinality(taken);
END
$$;

-- What was counted before, an hour at a time.
CREATE FUNCTION billing_fill_model_hours() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    began timestamptz;
BEGIN
    FOR began IN SELECT DISTINCT hour FROM billing_usage_hour ORDER BY 1 LOOP
        PERFORM billing_roll_up_model_hours(ARRAY(
            SELECT ROW(e.organization_id, e.request_id, e.occurred_at, false)::billing_usage_delta
              FROM billing_usage_event e
             WHERE e.occurred_at >= began AND e.occurred_at < began + interval '1 hour'
               AND NOT EXISTS (SELECT FROM billing_usage_delta d
                                WHERE d.organization_id = e.organization_id
                                  AND d.request_id = e.request_id)));
    END LOOP;
END
$$;

ALTER FUNCTION billing_roll_up_model_hours OWNER TO headrace_definer;
ALTER FUNCTION billing_fill_model_hours OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_roll_up_model_hours FROM PUBLIC;
SELECT billing_fill_model_hours();
DROP FUNCTION billing_fill_model_hours;
