"""Reconciling, with its outcome kept for the operator's pages. Changes nothing of the books.

Called by `manage.py reconcile` and by a worker, once a day.
"""

import time

import structlog

from billing.contracts import InvariantReport
from billing.facade import reconcile_report
from headrace.operator_console.reports.keeping import ReportName, keep

log = structlog.get_logger(__name__)


def reconcile_and_keep() -> list[InvariantReport]:
    """What each invariant came to."""
    began = time.monotonic()
    reports = reconcile_report()
    broken = [report for report in reports if report.findings]
    for report in broken:
        log.error("the books do not agree", broken_when=report.broken_when, table=report.table)
    keep(
        ReportName.BOOKS,
        {
            "took_ms": round(1000 * (time.monotonic() - began)),
            "invariants": len(reports),
            "rows": sum({report.table: report.rows for report in reports}.values()),
            "broken": [
                {
                    "broken_when": report.broken_when,
                    "table": report.table,
                    "findings": list(report.findings),
                }
                for report in broken
            ],
        },
    )
    return reports
