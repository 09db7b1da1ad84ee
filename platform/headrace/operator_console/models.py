"""What the operator's pages keep: orders that a worker carries out, and reports that it writes.

The web's role reads and places them through the database's functions only. Used inside
`operator_console` only.
"""

from django.db import models
from django.db.models.functions import Now

KIND_CHARS_MAX = 32
OUTCOME_CHARS_MAX = 16
NAME_CHARS_MAX = 32
ADDRESS_CHARS_MAX = 64


class OrderRow(models.Model):
    """What somebody of the staff wants done, as they signed it; done once, or refused."""

    id = models.UUIDField(primary_key=True)
    operator_id = models.UUIDField()
    ip = models.CharField(max_length=ADDRESS_CHARS_MAX)
    request_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=KIND_CHARS_MAX)
    body = models.TextField()
    signature = models.BinaryField()
    placed_at = models.DateTimeField(db_default=Now())
    claimed_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=OUTCOME_CHARS_MAX, db_default="")
    answer = models.JSONField(null=True)

    class Meta:
        db_table = "operator_order"
        indexes = [
            models.Index(
                name="operator_order_waiting",
                fields=["placed_at"],
                condition=models.Q(outcome=""),
            ),
            models.Index(name="operator_order_latest", fields=["-placed_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class ReportRow(models.Model):
    """The last of each report that a worker writes."""

    name = models.CharField(primary_key=True, max_length=NAME_CHARS_MAX)
    made_at = models.DateTimeField()
    content = models.JSONField()

    class Meta:
        db_table = "operator_report"

    def __str__(self) -> str:
        return self.name
