"""What must hold of Stripe's rows: the queries that `billing.reconcile` runs for them.

Each is a statement, the table it is about, and a query of the rows that break it.
"""

TOLD_MORE_THAN_USED = """
    SELECT e.organization_id, e.hour, e.model, e.token_class, e.tokens, coalesce(u.tokens, 0)
      FROM (SELECT organization_id, hour, model, token_class, sum(tokens) AS tokens
              FROM billing_stripe_export GROUP BY 1, 2, 3, 4) e
      LEFT JOIN (
        SELECT h.organization_id, h.hour, h.model_served AS model,
               CASE h.tier WHEN 'batch' THEN 'batch_' ELSE '' END || class.name AS token_class,
               sum(class.tokens) AS tokens
          FROM billing_usage_hour h
         CROSS JOIN LATERAL (VALUES ('input', h.uncached_input_tokens),
                                    ('cached_input', h.cached_input_tokens),
                                    ('output', h.output_tokens)) AS class (name, tokens)
         GROUP BY 1, 2, 3, 4) u
        ON (u.organization_id, u.hour, u.model, u.token_class)
         = (e.organization_id, e.hour, e.model, e.token_class)
     WHERE e.tokens > coalesce(u.tokens, 0)"""

PAID_EVENT_WITHOUT_CREDIT = """
    SELECT e.id, e.outcome, t.id, t.state
      FROM billing_stripe_event e JOIN billing_top_up t ON t.id = e.top_up_id
     WHERE e.kind = 'payment_intent.succeeded' AND e.outcome <> 'quarantined'
       AND t.state NOT IN ('succeeded', 'refunded')"""

INVARIANTS = (
    (
        "Stripe is told more tokens of an hour than it used",
        "billing_stripe_export",
        TOLD_MORE_THAN_USED,
    ),
    (
        "Stripe said that a top-up was paid, and it is not",
        "billing_stripe_event",
        PAID_EVENT_WITHOUT_CREDIT,
    ),
)
