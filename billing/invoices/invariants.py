"""What must hold of issued documents: the queries that `billing.reconcile` runs for them.

Each is a statement, the table it is about, and a query of the rows that break it.
"""

NOT_THE_SUM_OF_LINES = """
    SELECT i.organization_id, i.number, i.exact_pico, i.residue_in_pico, i.net_pico,
           i.residue_out_pico, coalesce(sum(l.exact_pico), 0), coalesce(sum(l.rounded_pico), 0)
      FROM billing_invoice i
      LEFT JOIN billing_invoice_line l ON l.invoice_id = i.id
       AND l.kind IN ('usage', 'correction', 'written_off', 'carried', 'credit')
     GROUP BY i.id
    HAVING coalesce(sum(l.rounded_pico), 0) <> i.net_pico
        OR coalesce(sum(l.exact_pico), 0) <> i.exact_pico + i.residue_in_pico
        OR i.exact_pico + i.residue_in_pico <> i.net_pico + i.residue_out_pico"""

NUMBERS_WITH_A_GAP = """
    SELECT organization_id, count(*), max(number) FROM billing_invoice
     GROUP BY 1 HAVING max(number) <> count(*)"""

RESIDUE_NOT_CARRIED = """
    SELECT organization_id, number, residue_in_pico, carried FROM (
        SELECT organization_id, number, residue_in_pico, coalesce(lag(residue_out_pico) OVER (
                   PARTITION BY organization_id, kind ORDER BY number), 0) AS carried
          FROM billing_invoice WHERE kind <> 'credit_note') chained
     WHERE residue_in_pico <> carried"""

ROUNDING_NOT_THE_RESIDUE = """
    SELECT r.organization_id, r.rounding, coalesce(i.residue_out_pico, 0)
      FROM (SELECT a.organization_id, coalesce(sum(l.amount_pico), 0) AS rounding
              FROM billing_ledger_account a
              LEFT JOIN billing_ledger_leg l ON l.account_id = a.id
             WHERE a.kind = 'rounding' GROUP BY 1) r
      LEFT JOIN LATERAL (
            SELECT residue_out_pico FROM billing_invoice i
             WHERE i.organization_id = r.organization_id AND i.kind = 'invoice'
             ORDER BY i.number DESC LIMIT 1) i ON true
     WHERE r.rounding <> -coalesce(i.residue_out_pico, 0)"""

INVOICE_MISPOSTED = """
    SELECT i.organization_id, i.number, i.exact_pico, i.total_pico, l.credit, l.receivable, l.tax
      FROM billing_invoice i
      LEFT JOIN LATERAL (
        SELECT sum(l.amount_pico) FILTER (WHERE a.kind = 'credit') AS credit,
               sum(l.amount_pico) FILTER (WHERE a.kind = 'receivable') AS receivable,
               sum(l.amount_pico) FILTER (WHERE a.kind = 'tax') AS tax
          FROM billing_ledger_leg l JOIN billing_ledger_account a ON a.id = l.account_id
         WHERE l.transaction_id = i.ledger_tx_id) l ON true
     WHERE i.kind <> 'statement'
       AND (CASE WHEN i.kind = 'invoice' THEN i.exact_pico ELSE 0 END <> coalesce(l.credit, 0)
            OR i.total_pico <> -coalesce(l.receivable, 0)
            OR i.tax_pico <> coalesce(l.tax, 0))"""

RECEIVABLE_NOT_ASKED_FOR = """
    SELECT r.organization_id, r.receivable, coalesce(i.total, 0), coalesce(p.total, 0)
      FROM (SELECT a.organization_id, coalesce(sum(l.amount_pico), 0) AS receivable
              FROM billing_ledger_account a
              LEFT JOIN billing_ledger_leg l ON l.account_id = a.id
             WHERE a.kind = 'receivable' GROUP BY 1) r
      LEFT JOIN (SELECT organization_id, sum(total_pico) AS total FROM billing_invoice
                  WHERE kind <> 'statement' GROUP BY 1) i ON i.organization_id = r.organization_id
      LEFT JOIN (SELECT organization_id, sum(amount_pico) AS total FROM billing_invoice_payment
                  GROUP BY 1) p ON p.organization_id = r.organization_id
     WHERE -r.receivable <> coalesce(i.total, 0) - coalesce(p.total, 0)"""

USAGE_NOT_INVOICED = """
    SELECT d.organization_id, d.told, u.used, c.corrected
      FROM (SELECT organization_id, sum(usage_pico) AS told, max(period_end_at) AS end_at,
                   max(created_at) AS closed_at
              FROM billing_invoice WHERE kind <> 'credit_note' GROUP BY 1) d
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(e.charge_pico), 0) AS used
          FROM billing_usage_event e JOIN billing_ledger_tx t ON t.id = e.ledger_tx_id
         WHERE e.organization_id = d.organization_id AND e.occurred_at < d.end_at
           AND t.created_at <= d.closed_at) u
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.charged_pico), 0) AS corrected FROM billing_correction c
         WHERE c.organization_id = d.organization_id AND c.created_at < d.end_at
           AND c.created_at <= d.closed_at) c
     WHERE d.told <> u.used + c.corrected"""

INVARIANTS = (
    ("a document is not the sum of its lines", "billing_invoice", NOT_THE_SUM_OF_LINES),
    ("an organization's documents are numbered with a gap", "billing_invoice", NUMBERS_WITH_A_GAP),
    ("a document's residue was not carried to the next", "billing_invoice", RESIDUE_NOT_CARRIED),
    (
        "the rounding account is not what the last invoice left",
        "billing_invoice",
        ROUNDING_NOT_THE_RESIDUE,
    ),
    (
        "an invoice's ledger transaction is missing or asks something else",
        "billing_invoice",
        INVOICE_MISPOSTED,
    ),
    (
        "receivables are not what was invoiced and not paid",
        "billing_invoice",
        RECEIVABLE_NOT_ASKED_FOR,
    ),
    (
        "usage older than its closed period is in no document",
        "billing_invoice",
        USAGE_NOT_INVOICED,
    ),
)
