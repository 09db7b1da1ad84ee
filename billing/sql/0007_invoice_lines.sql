-- What documents are made of: reads only. Run once by migration 0007: a change is a new file in a
-- new migration.

-- What an organization used in a span of time, by what it was sold as: a row for each model, tier,
-- class and unit price, and one of class '' for what was written off. `grouped_by` splits the rows
-- further: '', 'project' or 'tag:<key>'.
CREATE FUNCTION billing_usage_lines(
    organization uuid, since timestamptz, until timestamptz, grouped_by text
)
RETURNS TABLE (model text, tier text, token_class text, micros bigint, of_group text,
               tokens numeric, exact numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH used AS (
        SELECT e.*, CASE WHEN grouped_by = 'project' THEN e.project_id::text
                         WHEN grouped_by LIKE 'tag:%' THEN coalesce(e.tags ->> substr(grouped_by, 5), '')
                         ELSE '' END AS of_group
          FROM billing_usage_event e
         WHERE e.organization_id = organization AND e.occurred_at >= since AND e.occurred_at < until
    )
    SELECT u.model_served::text, u.tier::text, c.token_class, c.micros, u.of_group,
           sum(c.tokens), sum(c.tokens::numeric * c.micros)
      FROM used u
     CROSS JOIN LATERAL (VALUES
           ('input', u.uncached_input_tokens, u.input_micros_per_mtok),
           ('cached_input', u.cached_input_tokens, u.cached_input_micros_per_mtok),
           ('output', u.output_tokens, u.output_micros_per_mtok)
         ) AS c (token_class, tokens, micros)
     WHERE c.tokens > 0
     GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT '', '', '', NULL, '', 0, sum(u.charge_pico - u.cost_pico)
      FROM used u WHERE u.charge_pico <> u.cost_pico HAVING count(*) > 0
    ORDER BY 5, 1, 2, 3 DESC, 4
$$;

-- What the last documents say of their periods' usage, and what it is now: the difference, which is
-- what came late.
CREATE FUNCTION billing_late_usage(organization uuid, documents_max int)
RETURNS TABLE (period_start timestamptz, period_end timestamptz, model text, tier text,
               token_class text, micros bigint, tokens numeric, exact numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH document AS (
        SELECT i.id, i.period_start_at AS period_start, i.period_end_at AS period_end
          FROM billing_invoice i
         WHERE i.organization_id = organization AND i.kind <> 'credit_note'
         ORDER BY i.period_start_at DESC LIMIT documents_max
    ), entry AS (
        SELECT d.period_start, d.period_end, u.model, u.tier, u.token_class, u.micros, u.tokens,
               u.exact
          FROM document d
         CROSS JOIN LATERAL
               billing_usage_lines(organization, d.period_start, d.period_end, '') u
        UNION ALL
        SELECT d.period_start, d.period_end, l.model, l.tier, l.token_class,
               l.price_micros_per_mtok, -l.tokens, -l.exact_pico
          FROM document d
          JOIN billing_invoice_line l ON l.organization_id = organization
           AND (l.kind IN ('usage', 'written_off') AND l.invoice_id = d.id
                OR l.kind = 'correction' AND l.of_period_start_at = d.period_start
                   AND l.token_class <> 'repriced')
    )
    SELECT e.period_start, e.period_end, e.model, e.tier, e.token_class, e.micros,
           sum(e.tokens), sum(e.exact)
      FROM entry e GROUP BY 1, 2, 3, 4, 5, 6
    HAVING sum(e.tokens) <> 0 OR sum(e.exact) <> 0
     ORDER BY 1, 3, 4, 5 DESC, 6
$$;

-- Corrections of charges by the operator, made until the end of a period and in no document yet, by
-- the documents' period that the corrected requests belong to; the period itself where there is
-- none before. In plpgsql, for the table of corrections comes with a later migration.
CREATE FUNCTION billing_repriced_lines(
    organization uuid, since timestamptz, until timestamptz
)
RETURNS TABLE (period_start timestamptz, period_end timestamptz, model text, tier text,
               exact numeric)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT made.period_start, made.period_end, made.model, made.tier, sum(made.exact)
      FROM (
        SELECT coalesce(i.period_start_at, since) AS period_start,
               coalesce(i.period_end_at, until) AS period_end,
               e.model_served::text AS model, e.tier::text AS tier, c.charged_pico AS exact
          FROM billing_correction c
          JOIN billing_usage_event e
            ON e.occurred_at = c.occurred_at AND e.request_id = c.request_id
          LEFT JOIN billing_invoice i ON i.organization_id = organization
           AND i.kind <> 'credit_note'
           AND c.occurred_at >= i.period_start_at AND c.occurred_at < i.period_end_at
         WHERE c.organization_id = organization AND c.created_at < until
        UNION ALL
        SELECT l.of_period_start_at, l.of_period_end_at, l.model::text, l.tier::text, -l.exact_pico
          FROM billing_invoice_line l
         WHERE l.organization_id = organization AND l.kind = 'correction'
           AND l.token_class = 'repriced') AS made
     GROUP BY 1, 2, 3, 4 HAVING sum(made.exact) <> 0 ORDER BY 1, 3, 4;
END
$$;

-- Credit that came and went in a span of time otherwise than by usage, by kind and local day.
CREATE FUNCTION billing_credit_movements(
    organization uuid, since timestamptz, until timestamptz, zone text
)
RETURNS TABLE (tx_kind text, day date, exact numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT t.kind::text, (t.created_at AT TIME ZONE zone)::date, sum(l.amount_pico)
      FROM billing_ledger_tx t
      JOIN billing_ledger_leg l ON l.transaction_id = t.id
      JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'credit'
     WHERE t.organization_id = organization AND t.created_at >= since AND t.created_at < until
       AND t.kind IN ('top_up', 'grant', 'expiry', 'refund')
     GROUP BY 1, 2 ORDER BY 2, 1
$$;

-- Every account's organization, with what its next period follows from: its time zone, the end of
-- its last document's period, and its first entry, from which the first period is reckoned. Only
-- those whose next period can have ended `before`.
CREATE FUNCTION billing_periods_open(
    before timestamptz, shortest interval, organizations_max int
)
RETURNS TABLE (organization uuid, time_zone text, last_end timestamptz, first_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT o.id, o.time_zone::text, d.last_end, f.created_at
      FROM billing_account a
      JOIN tenants_organization o ON o.id = a.organization_id
     CROSS JOIN LATERAL (
        SELECT max(i.period_end_at) AS last_end FROM billing_invoice i
         WHERE i.organization_id = o.id AND i.kind <> 'credit_note') d
     CROSS JOIN LATERAL (
        SELECT t.created_at FROM billing_ledger_tx t WHERE t.organization_id = o.id
         ORDER BY t.id LIMIT 1) f
     WHERE coalesce(d.last_end + shortest, f.created_at) <= before
     ORDER BY coalesce(d.last_end, f.created_at), o.id LIMIT organizations_max
$$;

ALTER FUNCTION billing_usage_lines OWNER TO headrace_definer;
ALTER FUNCTION billing_late_usage OWNER TO headrace_definer;
ALTER FUNCTION billing_repriced_lines OWNER TO headrace_definer;
ALTER FUNCTION billing_credit_movements OWNER TO headrace_definer;
ALTER FUNCTION billing_periods_open OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_usage_lines, billing_late_usage, billing_repriced_lines, billing_credit_movements,
    billing_periods_open
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_usage_lines, billing_late_usage, billing_repriced_lines, billing_credit_movements,
    billing_periods_open
    TO headrace_housekeeper;
