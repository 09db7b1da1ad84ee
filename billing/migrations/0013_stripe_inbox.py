"""What Stripe sends waits for a worker, which alone may believe it."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0013_stripe_inbox.sql")
OUTCOMES = [
    "",
    "ignored",
    "applied",
    "unchanged",
    "quarantined",
    "repeated",
    "rejected",
    "invalid",
    "failed",
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_key_line")]

    operations = [
        migrations.CreateModel(
            name="StripeMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("body", models.BinaryField()),
                ("signature", models.CharField(max_length=2048)),
                (
                    "received_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("tries", models.PositiveIntegerField(db_default=0)),
                (
                    "next_try_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("outcome", models.CharField(db_default="", max_length=16)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "billing_stripe_message",
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "")),
                        fields=["next_try_at"],
                        name="billing_stripe_message_waiting",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", OUTCOMES)),
                        name="billing_stripe_message_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at", None), ("outcome", "")),
                            models.Q(
                                models.Q(("outcome", ""), _negated=True),
                                ("ended_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="billing_stripe_message_ended",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
