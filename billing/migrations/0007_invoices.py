"""Invoices, their lines, credit notes."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql")
FILES = ["0007_invoices.sql", "0007_invoice_lines.sql"]


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0006_credit"),
    ]

    operations = [
        migrations.CreateModel(
            name="BillingProfileRow",
            fields=[
                ("legal_name", models.CharField(db_default="", max_length=200)),
                ("address", models.CharField(db_default="", max_length=500)),
                ("email", models.CharField(db_default="", max_length=254)),
                ("tax_id", models.CharField(db_default="", max_length=40)),
                ("purchase_order", models.CharField(db_default="", max_length=80)),
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
            ],
            options={
                "db_table": "billing_profile",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="InvoiceLineRow",
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
                ("position", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=16)),
                ("model", models.CharField(db_default="", max_length=128)),
                ("tier", models.CharField(db_default="", max_length=16)),
                ("token_class", models.CharField(db_default="", max_length=16)),
                ("group", models.CharField(db_default="", max_length=256)),
                ("text", models.CharField(db_default="", max_length=256)),
                ("tokens", models.BigIntegerField(db_default=0)),
                ("price_micros_per_mtok", models.BigIntegerField(null=True)),
                ("exact_pico", billing.fields.IntegerMoneyField()),
                ("rounded_pico", billing.fields.IntegerMoneyField()),
                ("of_period_start_at", models.DateTimeField(null=True)),
                ("of_period_end_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "billing_invoice_line",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="InvoicePayment",
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
                ("reference", models.CharField(max_length=100)),
                ("ledger_tx_id", models.UUIDField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_invoice_payment",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="InvoiceRow",
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
                ("number", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=16)),
                ("corrects", models.UUIDField(null=True)),
                ("currency", models.CharField(max_length=3)),
                ("time_zone", models.CharField(max_length=64)),
                ("period_start_at", models.DateTimeField()),
                ("period_end_at", models.DateTimeField()),
                ("usage_pico", billing.fields.IntegerMoneyField()),
                ("exact_pico", billing.fields.IntegerMoneyField()),
                ("residue_in_pico", billing.fields.IntegerMoneyField()),
                ("residue_out_pico", billing.fields.IntegerMoneyField()),
                ("net_pico", billing.fields.IntegerMoneyField()),
                ("tax_label", models.CharField(max_length=40)),
                ("tax_ppm", models.PositiveIntegerField()),
                ("tax_pico", billing.fields.IntegerMoneyField()),
                ("total_pico", billing.fields.IntegerMoneyField()),
                ("ledger_tx_id", models.UUIDField(null=True)),
                ("issued_at", models.DateTimeField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("due_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "billing_invoice",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="invoicelinerow",
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
            model_name="invoicepayment",
            name="organization",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.CreateModel(
            name="InvoiceRecipient",
            fields=[
                ("legal_name", models.CharField(db_default="", max_length=200)),
                ("address", models.CharField(db_default="", max_length=500)),
                ("email", models.CharField(db_default="", max_length=254)),
                ("tax_id", models.CharField(db_default="", max_length=40)),
                ("purchase_order", models.CharField(db_default="", max_length=80)),
                (
                    "invoice",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="billing.invoicerow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_invoice_recipient",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="invoicerow",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="invoicepayment",
            name="invoice",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="payments",
                to="billing.invoicerow",
            ),
        ),
        migrations.AddField(
            model_name="invoicelinerow",
            name="invoice",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="lines",
                to="billing.invoicerow",
            ),
        ),
        migrations.AddField(
            model_name="invoicerecipient",
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
            model_name="invoicerow",
            constraint=models.UniqueConstraint(
                fields=("organization", "number"), name="billing_invoice_number_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "credit_note"), _negated=True),
                fields=("organization", "period_start_at"),
                name="billing_invoice_one_a_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_invoice_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["invoice", "statement", "credit_note"])),
                name="billing_invoice_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "exact_pico",
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                models.F("net_pico"), "+", models.F("residue_out_pico")
                            ),
                            "-",
                            models.F("residue_in_pico"),
                        ),
                    )
                ),
                name="billing_invoice_residue",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "total_pico",
                        django.db.models.expressions.CombinedExpression(
                            models.F("net_pico"), "+", models.F("tax_pico")
                        ),
                    )
                ),
                name="billing_invoice_total",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.CheckConstraint(
                condition=models.Q(("period_end_at__gt", models.F("period_start_at"))),
                name="billing_invoice_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicerow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("corrects__isnull", False), ("kind", "credit_note")),
                    models.Q(models.Q(("kind", "credit_note"), _negated=True), ("corrects", None)),
                    _connector="OR",
                ),
                name="billing_invoice_corrects",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicepayment",
            constraint=models.UniqueConstraint(
                fields=("organization", "reference"), name="billing_payment_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicepayment",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_pico", 0), _negated=True),
                name="billing_payment_not_zero",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicelinerow",
            constraint=models.UniqueConstraint(
                fields=("invoice", "position"), name="billing_invoice_line_position"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicelinerow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "usage",
                            "correction",
                            "written_off",
                            "carried",
                            "credit",
                            "top_up",
                            "grant",
                            "expired",
                            "refund",
                        ],
                    )
                ),
                name="billing_invoice_line_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicelinerow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "correction"), ("of_period_start_at__isnull", False)),
                    models.Q(
                        models.Q(("kind", "correction"), _negated=True),
                        ("of_period_start_at", None),
                    ),
                    _connector="OR",
                ),
                name="billing_invoice_line_correction",
            ),
        ),
        *(migrations.RunSQL(SQL.joinpath(name).read_text(encoding="utf-8")) for name in FILES),
    ]
