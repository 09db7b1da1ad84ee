"""Usage by hour and model, with what caching saved and the times to the first token."""

from pathlib import Path

import django.contrib.postgres.fields
from django.db import migrations, models

import billing.fields

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0016_model_hours.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0015_recent_requests")]

    operations = [
        migrations.CreateModel(
            name="UsageModelHour",
            fields=[
                ("organization_id", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("project_id", models.UUIDField()),
                ("model_served", models.CharField(max_length=128)),
                ("tier", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
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
                        "model_served",
                        "tier",
                        "currency",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("cache_saved_pico", billing.fields.IntegerMoneyField()),
                (
                    "first_token_counts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), size=None
                    ),
                ),
            ],
            options={
                "db_table": "billing_usage_model_hour",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
