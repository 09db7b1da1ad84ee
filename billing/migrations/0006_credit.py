"""Credit grants and what burns them, top-ups, refunds."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql")
FILES = ["0006_credit.sql", "0006_topups.sql"]


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0005_rollups"),
    ]

    operations = [
        migrations.CreateModel(
            name="BillingSettingsRow",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="tenants.organizationrow",
                    ),
                ),
                ("low_balance_pico", billing.fields.IntegerMoneyField(null=True)),
                ("low_since_at", models.DateTimeField(null=True)),
                ("recharge_is_enabled", models.BooleanField(db_default=False)),
                ("recharge_threshold_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("recharge_amount_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("recharge_month_max_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("recharge_failures", models.PositiveSmallIntegerField(db_default=0)),
                ("recharge_not_before_at", models.DateTimeField(null=True)),
                ("group_lines_by", models.CharField(db_default="", max_length=80)),
                ("tax_label", models.CharField(db_default="", max_length=40)),
                ("tax_ppm", models.PositiveIntegerField(db_default=0)),
                ("payment_days", models.PositiveSmallIntegerField(db_default=14)),
            ],
            options={
                "db_table": "billing_settings",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="CreditGrantRow",
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
                ("source", models.CharField(max_length=140)),
                ("category", models.CharField(max_length=16)),
                ("priority", models.SmallIntegerField()),
                ("amount_pico", billing.fields.IntegerMoneyField()),
                ("remaining_pico", billing.fields.IntegerMoneyField()),
                ("leaving_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("effective_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("posted_at", models.DateTimeField(null=True)),
                ("ledger_tx_id", models.UUIDField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_credit_grant",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="GrantBurn",
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
                ("kind", models.CharField(max_length=16)),
                ("amount_pico", billing.fields.IntegerMoneyField()),
                ("ledger_tx_id", models.UUIDField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_grant_burn",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="TopUpRow",
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
                ("amount_pico", billing.fields.IntegerMoneyField()),
                ("currency", models.CharField(max_length=3)),
                ("state", models.CharField(db_default="pending", max_length=16)),
                ("is_recharge", models.BooleanField(db_default=False)),
                ("idempotency_key", models.CharField(max_length=255)),
                ("payment_reference", models.CharField(db_default="", max_length=255)),
                ("refunded_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("failure", models.CharField(db_default="", max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("completed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "billing_top_up",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.RemoveConstraint(
            model_name="ledgeraccount",
            name="billing_ledger_account_known_kind",
        ),
        migrations.AddField(
            model_name="account",
            name="burned_pico",
            field=billing.fields.IntegerMoneyField(default=0),
        ),
        migrations.AddField(
            model_name="account",
            name="funded_pico",
            field=billing.fields.IntegerMoneyField(default=0),
        ),
        migrations.AddField(
            model_name="account",
            name="leaving_pico",
            field=billing.fields.IntegerMoneyField(db_default=0),
        ),
        migrations.AddField(
            model_name="ledgertransaction",
            name="reverses",
            field=models.UUIDField(null=True),
        ),
        migrations.AlterField(
            model_name="ledgeraccount",
            name="kind",
            field=models.CharField(
                choices=[
                    ("credit", "Credit"),
                    ("cash", "Cash"),
                    ("receivable", "Receivable"),
                    ("revenue", "Revenue"),
                    ("promo", "Promo"),
                    ("write_off", "Write Off"),
                    ("rounding", "Rounding"),
                    ("tax", "Tax"),
                    ("expired", "Expired"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgeraccount",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "credit",
                            "cash",
                            "receivable",
                            "revenue",
                            "promo",
                            "write_off",
                            "rounding",
                            "tax",
                            "expired",
                        ],
                    )
                ),
                name="billing_ledger_account_known_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="billingsettingsrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("recharge_is_enabled", False),
                    models.Q(
                        ("recharge_amount_pico__gt", 0),
                        ("recharge_month_max_pico__gte", models.F("recharge_amount_pico")),
                    ),
                    _connector="OR",
                ),
                name="billing_settings_recharge",
            ),
        ),
        migrations.AddConstraint(
            model_name="billingsettingsrow",
            constraint=models.CheckConstraint(
                condition=models.Q(("tax_ppm__lte", 1000000)), name="billing_settings_tax"
            ),
        ),
        migrations.AddField(
            model_name="creditgrantrow",
            name="organization",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="grantburn",
            name="grant",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="burns",
                to="billing.creditgrantrow",
            ),
        ),
        migrations.AddField(
            model_name="grantburn",
            name="organization",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="topuprow",
            name="organization",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.UniqueConstraint(
                fields=("organization", "source"), name="billing_credit_grant_source_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_credit_grant_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.CheckConstraint(
                condition=models.Q(("category__in", ["promotional", "paid"])),
                name="billing_credit_grant_category",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("amount_pico__gt", 0),
                    ("remaining_pico__gte", 0),
                    ("remaining_pico__lte", models.F("amount_pico")),
                ),
                name="billing_credit_grant_remaining",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("leaving_pico__gte", 0),
                    ("leaving_pico__lte", models.F("remaining_pico")),
                ),
                name="billing_credit_grant_leaving",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("expires_at", None),
                    ("expires_at__gt", models.F("effective_at")),
                    _connector="OR",
                ),
                name="billing_credit_grant_lives",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditgrantrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ledger_tx_id", None), ("posted_at", None)),
                    models.Q(("ledger_tx_id__isnull", False), ("posted_at__isnull", False)),
                    _connector="OR",
                ),
                name="billing_credit_grant_posted",
            ),
        ),
        migrations.AddConstraint(
            model_name="grantburn",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_pico__gt", 0)), name="billing_grant_burn_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="grantburn",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "usage"), ("ledger_tx_id", None)),
                    models.Q(
                        ("kind__in", ["expired", "refunded"]), ("ledger_tx_id__isnull", False)
                    ),
                    _connector="OR",
                ),
                name="billing_grant_burn_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="topuprow",
            constraint=models.UniqueConstraint(
                fields=("organization", "idempotency_key"), name="billing_top_up_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="topuprow",
            constraint=models.UniqueConstraint(
                condition=models.Q(("payment_reference", ""), _negated=True),
                fields=("payment_reference",),
                name="billing_top_up_payment_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="topuprow",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_recharge", True), ("state", "pending")),
                fields=("organization",),
                name="billing_top_up_one_open_recharge",
            ),
        ),
        migrations.AddConstraint(
            model_name="topuprow",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["pending", "succeeded", "failed", "refunded"])),
                name="billing_top_up_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="topuprow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("amount_pico__gt", 0),
                    ("refunded_pico__gte", 0),
                    ("refunded_pico__lte", models.F("amount_pico")),
                ),
                name="billing_top_up_amounts",
            ),
        ),
        *(migrations.RunSQL(SQL.joinpath(name).read_text(encoding="utf-8")) for name in FILES),
    ]
