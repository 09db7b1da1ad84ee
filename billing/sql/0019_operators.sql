-- What the operator's pages read of all tenants' money. Run once by migration 0019.
--
-- As in tenants' 0011_operators.sql: each function asks whether who asks is of the staff.

-- Accounts of these organizations, and what each was charged since its own moment: whole hours of
-- the rollup, the events of an hour that the moment cuts, and those that no rollup has counted.
CREATE FUNCTION billing_operator_accounts(
    operator uuid, organizations uuid[], moments timestamptz[]
) RETURNS TABLE (
    organization_id uuid, currency text, posted_pico numeric, held_pico numeric,
    floor_pico numeric, charged_pico numeric
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY
    SELECT a.organization_id, a.currency::text, a.posted_pico, a.held_pico, a.floor_pico,
           coalesce((SELECT sum(h.charge_pico) FROM billing_usage_model_hour h
                      WHERE h.organization_id = a.organization_id AND h.hour >= whole.since), 0)
         + coalesce((SELECT sum(e.charge_pico) FROM billing_usage_event e
                      WHERE e.organization_id = a.organization_id
                        AND e.occurred_at >= asked.since AND e.occurred_at < whole.since), 0)
         + coalesce((SELECT sum(e.charge_pico) FROM billing_usage_delta d
                       JOIN billing_usage_event e ON e.occurred_at = d.occurred_at
                        AND e.request_id = d.request_id
                      WHERE d.organization_id = a.organization_id
                        AND d.occurred_at >= whole.since), 0)
      FROM unnest(organizations, moments) AS asked (id, since)
      JOIN billing_account a ON a.organization_id = asked.id
     CROSS JOIN LATERAL (
           SELECT date_trunc('hour', asked.since + interval '3599.999999 s') AS since) AS whole;
END
$$;

-- Usage of all tenants in whole hours from `start_at` on and before `end_at`.
CREATE FUNCTION billing_operator_usage(
    operator uuid, start_at timestamptz, end_at timestamptz, rows_max int
) RETURNS TABLE (
    organization_id uuid, model_served text, tier text, currency text, requests numeric,
    uncached_input_tokens numeric, cached_input_tokens numeric, output_tokens numeric,
    charge_pico numeric
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY
    SELECT u.organization_id, u.model_served, u.tier, u.currency, sum(u.requests),
           sum(u.uncached_input_tokens), sum(u.cached_input_tokens), sum(u.output_tokens),
           sum(u.charge_pico)
      FROM (SELECT h.organization_id, h.model_served::text, h.tier::text, h.currency::text,
                   h.requests, h.uncached_input_tokens, h.cached_input_tokens, h.output_tokens,
                   h.charge_pico
              FROM billing_usage_model_hour h
             WHERE h.hour >= date_trunc('hour', start_at) AND h.hour < end_at
             UNION ALL
            SELECT e.organization_id, e.model_served::text, e.tier::text, e.currency::text,
                   1, e.uncached_input_tokens, e.cached_input_tokens, e.output_tokens,
                   e.charge_pico
              FROM billing_usage_delta d
              JOIN billing_usage_event e ON e.occurred_at = d.occurred_at
               AND e.request_id = d.request_id
             WHERE d.occurred_at >= date_trunc('hour', start_at) AND d.occurred_at < end_at) AS u
     GROUP BY 1, 2, 3, 4 ORDER BY sum(u.charge_pico) DESC, 1, 2, 3, 4 LIMIT rows_max;
END
$$;

ALTER FUNCTION billing_operator_accounts OWNER TO headrace_definer;
ALTER FUNCTION billing_operator_usage OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_operator_accounts, billing_operator_usage FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_operator_accounts, billing_operator_usage TO headrace_app;
