"""The tables of `billing`, under row-level security from the start."""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import uuid_utils.compat
from django.contrib.postgres.operations import BtreeGistExtension
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0001_protect.sql")


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenants", "0001_initial"),
    ]

    operations = [
        BtreeGistExtension(),
        migrations.CreateModel(
            name="LedgerAccount",
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
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("credit", "Credit"),
                            ("revenue", "Revenue"),
                            ("promo", "Promo"),
                            ("write_off", "Write Off"),
                        ],
                        max_length=16,
                    ),
                ),
                ("currency", models.CharField(max_length=3)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_ledger_account",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="OfferRow",
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
                ("public_id", models.CharField(max_length=128, unique=True)),
                ("display_name", models.CharField(max_length=128)),
                ("owned_by", models.CharField(max_length=64)),
                ("context_tokens_max", models.PositiveIntegerField()),
                ("output_tokens_max", models.PositiveIntegerField()),
                ("is_active", models.BooleanField(default=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_offer",
            },
        ),
        # Partitioned, so made by the SQL below.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="UsageEvent",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "occurred_at",
                                "request_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("occurred_at", models.DateTimeField()),
                        ("request_id", models.UUIDField()),
                        ("organization_id", models.UUIDField()),
                        ("project_id", models.UUIDField()),
                        ("key_id", models.UUIDField()),
                        ("ledger_tx_id", models.UUIDField()),
                        ("held_at", models.DateTimeField()),
                        ("tier", models.CharField(max_length=16)),
                        ("currency", models.CharField(max_length=3)),
                        ("model_asked", models.CharField(max_length=128)),
                        ("model_served", models.CharField(max_length=128)),
                        ("uncached_input_tokens", models.BigIntegerField()),
                        ("cached_input_tokens", models.BigIntegerField()),
                        ("output_tokens", models.BigIntegerField()),
                        ("input_price_id", models.UUIDField()),
                        ("cached_input_price_id", models.UUIDField()),
                        ("output_price_id", models.UUIDField()),
                        ("input_micros_per_mtok", models.BigIntegerField()),
                        ("cached_input_micros_per_mtok", models.BigIntegerField()),
                        ("output_micros_per_mtok", models.BigIntegerField()),
                        ("cost_pico", billing.fields.IntegerMoneyField()),
                        ("charge_pico", billing.fields.IntegerMoneyField()),
                        ("finish_reason", models.CharField(max_length=32)),
                        ("source", models.CharField(max_length=16)),
                        ("queue_ms", models.BigIntegerField()),
                        ("prefill_ms", models.BigIntegerField()),
                        ("decode_ms", models.BigIntegerField()),
                    ],
                    options={
                        "db_table": "billing_usage_event",
                        "abstract": False,
                        "base_manager_name": "objects",
                    },
                ),
            ]
        ),
        migrations.CreateModel(
            name="Hold",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("account_id", models.UUIDField()),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("posted", "Posted"), ("voided", "Voided")],
                        db_default="open",
                        max_length=8,
                    ),
                ),
                ("tier", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("model_asked", models.CharField(max_length=128)),
                ("input_price_id", models.UUIDField()),
                ("cached_input_price_id", models.UUIDField()),
                ("output_price_id", models.UUIDField()),
                ("input_micros_per_mtok", models.BigIntegerField()),
                ("cached_input_micros_per_mtok", models.BigIntegerField()),
                ("output_micros_per_mtok", models.BigIntegerField()),
                ("prompt_tokens", models.BigIntegerField()),
                ("output_tokens_max", models.BigIntegerField()),
                ("amount_pico", billing.fields.IntegerMoneyField()),
                ("charge_pico", billing.fields.IntegerMoneyField(db_default=0)),
                ("used_tokens", models.BigIntegerField(db_default=0)),
                ("quota_policy_id", models.UUIDField(null=True)),
                ("quota_window_start", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "renewed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "key",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.apikey",
                    ),
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
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "db_table": "billing_hold",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="LedgerTransaction",
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
                ("idempotency_key", models.CharField(max_length=128)),
                ("kind", models.CharField(max_length=16)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_ledger_tx",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="LedgerLegRow",
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
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.ledgeraccount",
                    ),
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
                (
                    "transaction",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="legs",
                        to="billing.ledgertransaction",
                    ),
                ),
            ],
            options={
                "db_table": "billing_ledger_leg",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Price",
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
                ("tier", models.CharField(max_length=16)),
                (
                    "token_class",
                    models.CharField(
                        choices=[
                            ("input", "Input"),
                            ("cached_input", "Cached Input"),
                            ("output", "Output"),
                        ],
                        max_length=16,
                    ),
                ),
                ("currency", models.CharField(max_length=3)),
                ("price_micros_per_mtok", models.BigIntegerField()),
                ("valid", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                (
                    "offer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="prices",
                        to="billing.offerrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_price",
            },
        ),
        migrations.CreateModel(
            name="QuotaPolicy",
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
                ("daily_tokens_max", models.BigIntegerField(null=True)),
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_quota_policy",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="QuotaCounter",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "policy",
                        "window_start",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("window_start", models.DateTimeField()),
                ("used_tokens", models.BigIntegerField(default=0)),
                ("held_tokens", models.BigIntegerField(default=0)),
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
                (
                    "policy",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="counters",
                        to="billing.quotapolicy",
                    ),
                ),
            ],
            options={
                "db_table": "billing_quota_counter",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Account",
            fields=[
                (
                    "ledger_account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="billing.ledgeraccount",
                    ),
                ),
                ("currency", models.CharField(max_length=3)),
                ("posted_pico", billing.fields.IntegerMoneyField(default=0)),
                ("held_pico", billing.fields.IntegerMoneyField(default=0)),
                ("floor_pico", billing.fields.IntegerMoneyField(default=0)),
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
            ],
            options={
                "db_table": "billing_account",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddConstraint(
            model_name="ledgeraccount",
            constraint=models.UniqueConstraint(
                fields=("organization", "kind"), name="billing_ledger_account_kind"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgeraccount",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_ledger_account_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgeraccount",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["credit", "revenue", "promo", "write_off"])),
                name="billing_ledger_account_known_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgertransaction",
            constraint=models.UniqueConstraint(
                fields=("organization", "idempotency_key"), name="billing_ledger_tx_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgertransaction",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_ledger_tx_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerlegrow",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_pico", 0), _negated=True),
                name="billing_ledger_leg_not_zero",
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("tier__in", ["interactive", "batch"])),
                name="billing_price_known_tier",
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("token_class__in", ["input", "cached_input", "output"])),
                name="billing_price_known_class",
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("price_micros_per_mtok__gte", 0)),
                name="billing_price_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[
                    ("offer", "="),
                    ("tier", "="),
                    ("token_class", "="),
                    ("currency", "="),
                    ("valid", "&&"),
                ],
                name="billing_price_one_at_a_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotapolicy",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_quota_policy_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="quotapolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(("daily_tokens_max__gte", 0)),
                name="billing_quota_policy_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotacounter",
            constraint=models.CheckConstraint(
                condition=models.Q(("held_tokens__gte", 0), ("used_tokens__gte", 0)),
                name="billing_quota_counter_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="account",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "posted_pico__gte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("floor_pico"), "+", models.F("held_pico")
                        ),
                    )
                ),
                name="billing_account_above_floor",
            ),
        ),
        migrations.AddConstraint(
            model_name="account",
            constraint=models.CheckConstraint(
                condition=models.Q(("held_pico__gte", 0)), name="billing_account_held_not_negative"
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
