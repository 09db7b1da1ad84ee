"""What must hold of prices and corrections: the queries that `billing.reconcile` runs for them.

Each selects the rows that break its statement, out of those of its table.
"""

CORRECTION_MISPOSTED = """
    SELECT c.id, c.request_id, c.charged_pico, t.id, -coalesce(l.credit, 0), coalesce(l.revenue, 0)
      FROM billing_correction c
      LEFT JOIN billing_usage_event e ON e.occurred_at = c.occurred_at
       AND e.request_id = c.request_id AND e.organization_id = c.organization_id
      LEFT JOIN billing_ledger_tx t ON t.id = c.ledger_tx_id
       AND t.organization_id = c.organization_id AND t.reverses = e.ledger_tx_id
       AND t.idempotency_key = 'correction:' || c.book_id || ':' || c.request_id
      LEFT JOIN LATERAL (
        SELECT sum(l.amount_pico) FILTER (WHERE a.kind = 'credit') AS credit,
               sum(l.amount_pico) FILTER (WHERE a.kind = 'revenue') AS revenue
          FROM billing_ledger_leg l JOIN billing_ledger_account a ON a.id = l.account_id
         WHERE l.transaction_id = t.id) l ON true
     WHERE e.request_id IS NULL OR t.id IS NULL OR c.charged_pico <> -coalesce(l.credit, 0)
        OR c.new_pico - c.old_pico <> coalesce(l.revenue, 0)"""

CORRECTION_MISSING = """
    SELECT t.id, t.idempotency_key FROM billing_ledger_tx t
      LEFT JOIN billing_correction c ON c.ledger_tx_id = t.id
     WHERE t.kind = 'correction' AND c.id IS NULL"""

CORRECTIONS_NOT_CHAINED = """
    SELECT id, request_id, old_pico, expected FROM (
        SELECT c.id, c.request_id, c.old_pico,
               coalesce(lag(c.new_pico) OVER (PARTITION BY c.request_id ORDER BY c.id),
                        e.cost_pico) AS expected
          FROM billing_correction c
          JOIN billing_usage_event e ON e.occurred_at = c.occurred_at
           AND e.request_id = c.request_id) AS chained
     WHERE old_pico <> expected"""

PRICES_NOT_OF_THE_CATALOG = """
    SELECT h.id, sold.token_class, sold.price_id, sold.micros
      FROM billing_hold h
     CROSS JOIN LATERAL (VALUES
           ('input', h.input_price_id, h.input_micros_per_mtok),
           ('cached_input', h.cached_input_price_id, h.cached_input_micros_per_mtok),
           ('output', h.output_price_id, h.output_micros_per_mtok)
         ) AS sold (token_class, price_id, micros)
     WHERE NOT EXISTS (
        SELECT FROM billing_prices_of(h.organization_id) p
         WHERE p.id = sold.price_id AND (p.tier, p.currency) = (h.tier, h.currency)
           AND p.micros = sold.micros
           AND (p.token_class = sold.token_class OR p.id = h.input_price_id))"""
