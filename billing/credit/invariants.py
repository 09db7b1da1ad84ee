"""What must hold of credit: the queries that `billing.reconcile` runs for it.

Each is a statement, the table it is about, and a query of the rows that break it.
"""

GRANT_NOT_SPLIT = """
    SELECT g.id, g.amount_pico, g.remaining_pico, coalesce(sum(b.amount_pico), 0)
      FROM billing_credit_grant g LEFT JOIN billing_grant_burn b ON b.grant_id = g.id
     GROUP BY g.id HAVING g.amount_pico <> g.remaining_pico + coalesce(sum(b.amount_pico), 0)"""

GRANT_MISPOSTED = """
    SELECT g.id, g.amount_pico, t.id, coalesce(l.amount_pico, 0)
      FROM billing_credit_grant g
      LEFT JOIN billing_ledger_tx t ON t.id = g.ledger_tx_id
       AND t.organization_id = g.organization_id AND t.idempotency_key = g.source
      LEFT JOIN (SELECT l.transaction_id, l.amount_pico FROM billing_ledger_leg l
                   JOIN billing_ledger_account a ON a.id = l.account_id
                  WHERE a.kind = 'credit') l ON l.transaction_id = t.id
     WHERE g.posted_at IS NOT NULL AND g.amount_pico <> coalesce(l.amount_pico, 0)"""

FUNDS_NOT_ENTERED = """
    SELECT a.organization_id, a.funded_pico, coalesce(f.amount, 0)
      FROM billing_account a
      LEFT JOIN (SELECT l.account_id, sum(l.amount_pico) AS amount FROM billing_ledger_leg l
                   JOIN billing_ledger_tx t ON t.id = l.transaction_id
                  WHERE t.kind NOT IN ('usage', 'correction')
                  GROUP BY l.account_id) f ON f.account_id = a.ledger_account_id
     WHERE a.funded_pico <> coalesce(f.amount, 0)"""

BURNED_BY_NOBODY = """
    SELECT a.organization_id, a.burned_pico, coalesce(g.amount, 0), coalesce(i.amount, 0)
      FROM billing_account a
      LEFT JOIN (SELECT organization_id, sum(amount_pico) AS amount FROM billing_grant_burn
                  WHERE kind = 'usage' GROUP BY 1) g ON g.organization_id = a.organization_id
      LEFT JOIN (SELECT organization_id, sum(exact_pico) AS amount FROM billing_invoice
                  WHERE kind = 'invoice' GROUP BY 1) i ON i.organization_id = a.organization_id
     WHERE a.burned_pico <> coalesce(g.amount, 0) + coalesce(i.amount, 0)"""

BALANCE_OF_NO_GRANT = """
    SELECT a.organization_id, a.posted_pico, coalesce(g.remaining, 0),
           a.funded_pico - a.posted_pico - a.burned_pico AS owed
      FROM billing_account a
      LEFT JOIN (SELECT organization_id, sum(remaining_pico) AS remaining
                   FROM billing_credit_grant WHERE posted_at IS NOT NULL GROUP BY 1) g
        ON g.organization_id = a.organization_id
     WHERE a.posted_pico
        <> coalesce(g.remaining, 0) - (a.funded_pico - a.posted_pico - a.burned_pico)"""

LEAVING_NOT_OF_GRANTS = """
    SELECT a.organization_id, a.leaving_pico, coalesce(g.leaving, 0)
      FROM billing_account a
      LEFT JOIN (SELECT organization_id, sum(leaving_pico) AS leaving
                   FROM billing_credit_grant GROUP BY 1) g
        ON g.organization_id = a.organization_id
     WHERE a.leaving_pico <> coalesce(g.leaving, 0)"""

TOP_UP_NOT_GRANTED = """
    SELECT t.id, t.state, t.amount_pico, g.amount_pico
      FROM billing_top_up t
      LEFT JOIN billing_credit_grant g ON g.organization_id = t.organization_id
       AND g.source = 'top_up:' || t.id
     WHERE (t.state IN ('succeeded', 'refunded')) <> (g.id IS NOT NULL)
        OR g.amount_pico <> t.amount_pico
        OR (t.state = 'refunded') <> (t.refunded_pico = t.amount_pico)"""

CASH_NOT_ACCOUNTED_FOR = """
    SELECT c.organization_id, c.cash, coalesce(t.amount, 0), coalesce(g.amount, 0),
           coalesce(p.amount, 0)
      FROM (SELECT a.organization_id, coalesce(sum(l.amount_pico), 0) AS cash
              FROM billing_ledger_account a
              LEFT JOIN billing_ledger_leg l ON l.account_id = a.id
             WHERE a.kind = 'cash' GROUP BY 1) c
      LEFT JOIN (SELECT organization_id, sum(amount_pico - refunded_pico) AS amount
                   FROM billing_top_up WHERE state IN ('succeeded', 'refunded')
                  GROUP BY 1) t ON t.organization_id = c.organization_id
      LEFT JOIN (SELECT organization_id, sum(amount_pico) AS amount FROM billing_credit_grant
                  WHERE category = 'paid' AND posted_at IS NOT NULL AND source LIKE 'grant:%'
                  GROUP BY 1) g ON g.organization_id = c.organization_id
      LEFT JOIN (SELECT organization_id, sum(amount_pico) AS amount FROM billing_invoice_payment
                  GROUP BY 1) p ON p.organization_id = c.organization_id
     WHERE -c.cash <> coalesce(t.amount, 0) + coalesce(g.amount, 0) + coalesce(p.amount, 0)"""

INVARIANTS = (
    (
        "a grant is not what is left of it and what was burned",
        "billing_credit_grant",
        GRANT_NOT_SPLIT,
    ),
    (
        "a grant's ledger transaction is missing or gives something else",
        "billing_credit_grant",
        GRANT_MISPOSTED,
    ),
    (
        "an account's funds are not its entries other than usage",
        "billing_account",
        FUNDS_NOT_ENTERED,
    ),
    (
        "what grants and invoices have paid is not what the account says",
        "billing_account",
        BURNED_BY_NOBODY,
    ),
    (
        "a balance is not what is left of its grants less what is owed",
        "billing_account",
        BALANCE_OF_NO_GRANT,
    ),
    (
        "what leaves an account is not what leaves its grants",
        "billing_account",
        LEAVING_NOT_OF_GRANTS,
    ),
    ("a top-up and its grant do not agree", "billing_top_up", TOP_UP_NOT_GRANTED),
    (
        "cash is not what was paid in less what was paid back",
        "billing_ledger_account",
        CASH_NOT_ACCOUNTED_FOR,
    ),
)
