"""Corrections of past charges."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0009_corrections.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_stripe")]

    operations = [
        migrations.CreateModel(
            name="CorrectionRow",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid_utils.compat.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("occurred_at", models.DateTimeField()),
                ("request_id", models.UUIDField()),
                ("book_id", models.UUIDField()),
                ("old_pico", billing.fields.IntegerMoneyField()),
                ("new_pico", billing.fields.IntegerMoneyField()),
                ("charged_pico", billing.fields.IntegerMoneyField()),
                ("written_off_pico", billing.fields.IntegerMoneyField()),
                ("ledger_tx_id", models.UUIDField()),
                ("reason", models.CharField(max_length=200)),
                ("created_by", models.CharField(max_length=128)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_correction",
                "abstract": False,
                "base_manager_name": "objects",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("request_id", "organization", "book_id"),
                        name="billing_correction_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "new_pico",
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("old_pico"), "+", models.F("charged_pico")
                                    ),
                                    "+",
                                    models.F("written_off_pico"),
                                ),
                            ),
                            models.Q(("new_pico", models.F("old_pico")), _negated=True),
                            ("new_pico__gte", 0),
                            ("old_pico__gte", 0),
                        ),
                        name="billing_correction_adds_up",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
