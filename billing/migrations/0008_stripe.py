"""What Stripe was told, and what it told."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0008_stripe.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_invoices"), ("tenants", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="StripeAccount",
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
                ("customer_id", models.CharField(db_default="", max_length=255)),
                ("payment_method_id", models.CharField(db_default="", max_length=255)),
                ("payment_method_at", models.DateTimeField(null=True)),
                ("is_demo", models.BooleanField(db_default=False)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_stripe_account",
                "abstract": False,
                "base_manager_name": "objects",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("customer_id", ""), _negated=True),
                        fields=("customer_id",),
                        name="billing_stripe_account_customer_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StripeCheckout",
            fields=[
                ("top_up_id", models.UUIDField(primary_key=True, serialize=False)),
                ("session_id", models.CharField(max_length=255, unique=True)),
                ("url", models.CharField(max_length=2048)),
                ("expires_at", models.DateTimeField()),
                (
                    "looked_at",
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
                "db_table": "billing_stripe_checkout",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="StripeEvent",
            fields=[
                ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=100)),
                ("top_up_id", models.UUIDField()),
                ("outcome", models.CharField(max_length=16)),
                ("detail", models.CharField(db_default="", max_length=200)),
                ("created_at", models.DateTimeField()),
                (
                    "applied_at",
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
                "db_table": "billing_stripe_event",
                "abstract": False,
                "base_manager_name": "objects",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("outcome__in", ["applied", "unchanged", "quarantined"])
                        ),
                        name="billing_stripe_event_outcome",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StripeExport",
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
                ("hour", models.DateTimeField()),
                ("model", models.CharField(max_length=128)),
                ("token_class", models.CharField(max_length=32)),
                ("sequence", models.PositiveIntegerField()),
                ("tokens", models.BigIntegerField()),
                ("state", models.CharField(db_default="pending", max_length=16)),
                ("sent_at", models.DateTimeField(null=True)),
                ("attempts", models.PositiveIntegerField(db_default=0)),
                ("failure", models.CharField(db_default="", max_length=200)),
                ("closed_at", models.DateTimeField(null=True)),
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
                "db_table": "billing_stripe_export",
                "abstract": False,
                "base_manager_name": "objects",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "pending")),
                        fields=["hour"],
                        name="billing_stripe_export_waiting",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "hour", "model", "token_class", "sequence"),
                        name="billing_stripe_export_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("tokens__gt", 0)), name="billing_stripe_export_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["pending", "delivered", "refused"])),
                        name="billing_stripe_export_state",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
