"""Quotas of several scopes, metrics and periods, held and settled in one go."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql")
FILES = ["0004_quotas.sql", "0004_take_holds.sql", "0004_close_holds.sql"]


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_catalog")]

    operations = [
        # Another key and other columns: the two tables are made anew.
        migrations.DeleteModel(name="QuotaCounter"),
        migrations.DeleteModel(name="QuotaPolicy"),
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
                ("scope", models.CharField(max_length=16)),
                ("scope_id", models.UUIDField(null=True)),
                ("end_user", models.CharField(max_length=128)),
                ("metric", models.CharField(max_length=16)),
                ("period", models.CharField(max_length=8)),
                ("time_zone", models.CharField(max_length=64)),
                ("limit_amount", billing.fields.IntegerMoneyField()),
                ("is_hard", models.BooleanField()),
                ("counts_cached", models.BooleanField()),
                (
                    "recipients",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=254), size=None
                    ),
                ),
                ("subject_prefix", models.CharField(max_length=64)),
                ("set_at", models.DateTimeField()),
                ("set_by_kind", models.CharField(max_length=16)),
                ("set_by_id", models.UUIDField(null=True)),
                ("lifted_at", models.DateTimeField(null=True)),
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
                "db_table": "billing_quota_policy",
                "abstract": False,
                "base_manager_name": "objects",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "id"), name="billing_quota_policy_with_tenant"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("is_hard", True), ("lifted_at", None)),
                        fields=(
                            "organization",
                            "scope",
                            "scope_id",
                            "end_user",
                            "metric",
                            "period",
                        ),
                        name="billing_quota_policy_one_hard",
                        nulls_distinct=False,
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("is_hard", False), ("lifted_at", None)),
                        fields=(
                            "organization",
                            "scope",
                            "scope_id",
                            "end_user",
                            "metric",
                            "period",
                            "limit_amount",
                        ),
                        name="billing_quota_policy_soft_apart",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("limit_amount__gte", 0),
                            (
                                "metric__in",
                                ["requests", "tokens", "input_tokens", "output_tokens", "spend"],
                            ),
                            ("period__in", ["day", "month"]),
                            ("scope__in", ["organization", "project", "key", "end_user"]),
                        ),
                        name="billing_quota_policy_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaCounter",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "policy",
                        "subject",
                        "window_start",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("subject", models.CharField(max_length=128)),
                ("window_start", models.DateTimeField()),
                ("used_amount", billing.fields.IntegerMoneyField(default=0)),
                ("held_amount", billing.fields.IntegerMoneyField(default=0)),
                ("announced_percent", models.SmallIntegerField(db_default=0)),
                ("announced_limit", billing.fields.IntegerMoneyField(db_default=0)),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("held_amount__gte", 0), ("used_amount__gte", 0)),
                        name="billing_quota_counter_not_negative",
                    )
                ],
            },
        ),
        migrations.RemoveField(model_name="hold", name="quota_policy_id"),
        migrations.RemoveField(model_name="hold", name="quota_window_start"),
        migrations.RemoveField(model_name="hold", name="used_tokens"),
        migrations.AddField(
            model_name="hold",
            name="uncached_input_tokens",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="hold",
            name="cached_input_tokens",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="hold",
            name="output_tokens",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="hold",
            name="quota_version",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="hold",
            name="end_user",
            field=models.CharField(db_default="", max_length=128),
        ),
        migrations.AddField(
            model_name="hold",
            name="tags",
            field=models.JSONField(db_default={}),
        ),
        migrations.AddField(
            model_name="account",
            name="quota_version",
            field=models.BigIntegerField(db_default=0),
        ),
        # Partitioned, so altered by the SQL below.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AddField(
                    model_name="usageevent",
                    name="end_user",
                    field=models.CharField(max_length=128),
                    preserve_default=False,
                ),
                migrations.AddField(
                    model_name="usageevent",
                    name="tags",
                    field=models.JSONField(),
                    preserve_default=False,
                ),
            ]
        ),
        *[migrations.RunSQL(SQL.joinpath(name).read_text(encoding="utf-8")) for name in FILES],
    ]
