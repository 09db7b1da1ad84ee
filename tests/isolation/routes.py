"""The isolation matrix: every route there is, and how to ask it for somebody else's things.

A route nobody listed fails test_route_matrix.py. To list one, add a row to the `rows_*.py` of
its kind under its full route, as urls.py spells it:

    "api/v1/organizations/<uuid:organization_id>/things/<uuid:thing_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "x"}), "DELETE": Act(status=204)},
        own=thing, deleted=deleted_thing, sibling=thing_of_sibling)

`own` makes a fresh object on a side (through its facade, as `side.actor`) and returns the path's
arguments beyond `organization_id`; it is called for acme's 200, for globex's 404 and for each
method. `deleted` returns those of an object that is gone, `sibling` those that name an object of
the second project by way of the first; both must be 404. What has neither leaves them out.
The body of an act may be a function of the side and the arguments that `own` made.
"""

from tests.isolation.matrix import Row
from tests.isolation.rows_bulk import BATCH_ROWS, FILE_ROWS, SUMMARY_ROWS
from tests.isolation.rows_events import RETENTION_ROWS, WEBHOOK_ROWS
from tests.isolation.rows_limits import LIMITS_ROWS
from tests.isolation.rows_money import BILLING_ROWS
from tests.isolation.rows_people import PEOPLE_ROWS, PERSON_ROWS
from tests.isolation.rows_usage import CATALOG_ROWS, USAGE_ROWS

ROWS: dict[str, Row] = {
    **PEOPLE_ROWS,
    **USAGE_ROWS,
    **LIMITS_ROWS,
    **PERSON_ROWS,
    **CATALOG_ROWS,
    **BILLING_ROWS,
    **WEBHOOK_ROWS,
    **RETENTION_ROWS,
    **FILE_ROWS,
    **BATCH_ROWS,
    **SUMMARY_ROWS,
}
