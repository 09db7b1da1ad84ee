"""What repricing moved: one row for an event and a price book, beside the event and never in it.

Append-only; the SQL function of sql/0009_corrections.sql writes it. Used inside `billing` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"


class CorrectionRow(TenantModel):
    """`old_pico` is what the event had come to so far, `new_pico` what the book makes of it.

    The difference is what was charged (negative: given back) and what was written off.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    occurred_at = models.DateTimeField()
    request_id = models.UUIDField()
    # Of the list or of the tenant: two tables, so no foreign key. Neither is ever deleted.
    book_id = models.UUIDField()
    old_pico = IntegerMoneyField()
    new_pico = IntegerMoneyField()
    charged_pico = IntegerMoneyField()
    written_off_pico = IntegerMoneyField()
    ledger_tx_id = models.UUIDField()
    reason = models.CharField(max_length=200)
    created_by = models.CharField(max_length=128)
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_correction"
        constraints = [
            models.UniqueConstraint(
                fields=["request_id", "organization", "book_id"], name="billing_correction_once"
            ),
            models.CheckConstraint(
                name="billing_correction_adds_up",
                condition=models.Q(
                    new_pico=models.F("old_pico")
                    + models.F("charged_pico")
                    + models.F("written_off_pico")
                )
                & ~models.Q(new_pico=models.F("old_pico"))
                & models.Q(new_pico__gte=0, old_pico__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.old_pico} -> {self.new_pico}"
