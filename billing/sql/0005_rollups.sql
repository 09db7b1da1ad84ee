-- Usage by hour: the queue that a settle writes, and the function that empties it. Run once by
-- migration 0005: a change is a new file in a new migration.
--
-- A rollup is derived from events, each of which is in the queue exactly until it is counted: both
-- happen in one transaction, so whoever dies, and however late a settle commits, nothing is lost
-- or counted twice. Reports add what is still in the queue. None of the three tables has foreign
-- keys: their rows repeat columns of events, and one odd row must not hold up the queue.

SELECT tenants_protect('billing_usage_delta');
SELECT tenants_protect('billing_usage_hour');
SELECT tenants_protect('billing_usage_tag_hour');
-- The queue is short and every row of it dies: vacuum by count, not by share of the table.
ALTER TABLE billing_usage_delta SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 1000);
-- The rows of the hour that runs are updated every few seconds.
ALTER TABLE billing_usage_hour SET (fillfactor = 80);
ALTER TABLE billing_usage_tag_hour SET (fillfactor = 80);

GRANT SELECT ON billing_usage_delta, billing_usage_hour, billing_usage_tag_hour
    TO headrace_app, headrace_housekeeper, headrace_definer;
-- A row is locked by whoever may update a column of it; none is ever updated.
GRANT INSERT, DELETE, UPDATE (occurred_at) ON billing_usage_delta TO headrace_definer;
GRANT INSERT, UPDATE ON billing_usage_hour, billing_usage_tag_hour TO headrace_definer;

-- Whether a request ended by a fault that is not its client's.
CREATE FUNCTION billing_usage_is_error(finish_reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN finish_reason IN ('error', 'timed_out', 'draining', 'engine_lost', 'fault', 'lost');

-- The tags of an event as one object: its end user is the tag `user`.
CREATE FUNCTION billing_usage_tags(tags jsonb, end_user text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN end_user = '' THEN tags ELSE tags || jsonb_build_object('user', end_user) END;

-- Queue an event, in the transaction that writes it.
CREATE FUNCTION billing_enqueue_usage(event billing_usage_event) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    INSERT INTO billing_usage_delta (organization_id, request_id, occurred_at, is_embedding)
    VALUES (event.organization_id, event.request_id, event.occurred_at,
            -- Only an embedding reserves no output.
            coalesce((SELECT h.output_tokens_max = 0 FROM billing_hold h
                       WHERE h.id = event.request_id), false));
END
$$;

-- Count up to `events_max` queued events; returns how many there were. Consumers at once share the
-- queue, and take the rollups' rows in one order, so that they wait for each other and no more. Of
-- a tag's values, an hour of an organization keeps `tag_values_max`, give or take what consumers
-- at once add to it unseen. Planned anew each time: a plan kept from when the tables were small
-- would read them whole.
CREATE FUNCTION billing_roll_up(events_max int, tag_values_max int) RETURNS int
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
    PERFORM billing_roll_up_tags(taken, tag_values_max);
    RETURN cardinality(taken);
END
$$;

CREATE FUNCTION billing_roll_up_tags(taken billing_usage_delta[], tag_values_max int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
BEGIN
    WITH tagged AS MATERIALIZED (
        SELECT e.*, d.is_embedding, date_trunc('hour', e.occurred_at) AS hour,
               tag.name AS tag_name, left(tag.value, 128) AS tag_value
          FROM unnest(taken) d
          JOIN billing_usage_event e
            ON e.occurred_at = d.occurred_at AND e.request_id = d.request_id
         CROSS JOIN LATERAL jsonb_each_text(billing_usage_tags(e.tags, e.end_user))
            AS tag (name, value)
    ), value AS (
        SELECT DISTINCT organization_id, tag_name, hour, tag_value,
               EXISTS (SELECT FROM billing_usage_tag_hour k
                        WHERE (k.organization_id, k.tag_name, k.hour, k.tag_value)
                            = (t.organization_id, t.tag_name, t.hour, t.tag_value)) AS known
          FROM tagged t
    ), kept AS (
        SELECT v.organization_id, v.tag_name, v.hour, v.tag_value
          FROM (SELECT *, row_number() OVER (
                    PARTITION BY organization_id, tag_name, hour, known ORDER BY tag_value) AS nth
                  FROM value) v
         WHERE v.known OR v.nth + (
            SELECT count(DISTINCT k.tag_value) FROM billing_usage_tag_hour k
             WHERE (k.organization_id, k.tag_name, k.hour)
                 = (v.organization_id, v.tag_name, v.hour)) <= tag_values_max
    )
    INSERT INTO billing_usage_tag_hour AS h (
        organization_id, tag_name, hour, tag_value, project_id, key_id, model_served, tier,
        currency, is_embedding, requests, errors, uncached_input_tokens, cached_input_tokens,
        output_tokens, cost_pico, charge_pico)
    SELECT t.organization_id, t.tag_name, t.hour, coalesce(k.tag_value, '(other)'), t.project_id,
           t.key_id, t.model_served, t.tier, t.currency, t.is_embedding,
           count(*), count(*) FILTER (WHERE billing_usage_is_error(t.finish_reason)),
           sum(t.uncached_input_tokens), sum(t.cached_input_tokens), sum(t.output_tokens),
           sum(t.cost_pico), sum(t.charge_pico)
      FROM tagged t
      LEFT JOIN kept k USING (organization_id, tag_name, hour, tag_value)
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    ON CONFLICT (organization_id, tag_name, hour, tag_value, project_id, key_id, model_served,
                 tier, currency, is_embedding)
    DO UPDATE SET requests = h.requests + excluded.requests,
                  errors = h.errors + excluded.errors,
                  uncached_input_tokens = h.uncached_input_tokens + excluded.uncached_input_tokens,
                  cached_input_tokens = h.cached_input_tokens + excluded.cached_input_tokens,
                  output_tokens = h.output_tokens + excluded.output_tokens,
                  cost_pico = h.cost_pico + excluded.cost_pico,
                  charge_pico = h.charge_pico + excluded.charge_pico;
END
$$;

ALTER FUNCTION billing_enqueue_usage OWNER TO headrace_definer;
ALTER FUNCTION billing_roll_up OWNER TO headrace_definer;
ALTER FUNCTION billing_roll_up_tags OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_enqueue_usage, billing_roll_up, billing_roll_up_tags FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_roll_up TO headrace_housekeeper;
