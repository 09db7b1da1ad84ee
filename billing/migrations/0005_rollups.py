"""Usage by hour, by tag and by end user, from a queue of deltas."""

from pathlib import Path

from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0005_rollups.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_quotas")]

    operations = [
        migrations.CreateModel(
            name="UsageDelta",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization_id",
                        "request_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("organization_id", models.UUIDField()),
                ("request_id", models.UUIDField()),
                ("occurred_at", models.DateTimeField()),
                ("is_embedding", models.BooleanField()),
            ],
            options={
                "db_table": "billing_usage_delta",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="UsageHour",
            fields=[
                ("organization_id", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("project_id", models.UUIDField()),
                ("key_id", models.UUIDField()),
                ("model_served", models.CharField(max_length=128)),
                ("tier", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("is_embedding", models.BooleanField()),
                ("requests", models.BigIntegerField()),
                ("errors", models.BigIntegerField()),
                ("uncached_input_tokens", models.BigIntegerField()),
                ("cached_input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("cost_pico", billing.fields.IntegerMoneyField()),
                ("charge_pico", billing.fields.IntegerMoneyField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization_id",
                        "hour",
                        "project_id",
                        "key_id",
                        "model_served",
                        "tier",
                        "currency",
                        "is_embedding",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
            ],
            options={
                "db_table": "billing_usage_hour",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="UsageTagHour",
            fields=[
                ("organization_id", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("project_id", models.UUIDField()),
                ("key_id", models.UUIDField()),
                ("model_served", models.CharField(max_length=128)),
                ("tier", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("is_embedding", models.BooleanField()),
                ("requests", models.BigIntegerField()),
                ("errors", models.BigIntegerField()),
                ("uncached_input_tokens", models.BigIntegerField()),
                ("cached_input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("cost_pico", billing.fields.IntegerMoneyField()),
                ("charge_pico", billing.fields.IntegerMoneyField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization_id",
                        "tag_name",
                        "hour",
                        "tag_value",
                        "project_id",
                        "key_id",
                        "model_served",
                        "tier",
                        "currency",
                        "is_embedding",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tag_name", models.CharField(max_length=64)),
                ("tag_value", models.CharField(max_length=128)),
            ],
            options={
                "db_table": "billing_usage_tag_hour",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
