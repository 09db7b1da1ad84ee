"""The tables of `batch_jobs`, under row-level security from the start."""

from pathlib import Path

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1] / "sql" / "0001_protect.sql"


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="SummaryJob",
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
                ("model", models.CharField(max_length=256)),
                ("items_total", models.PositiveIntegerField()),
                ("items_done", models.PositiveIntegerField(default=0)),
                ("items_failed", models.PositiveIntegerField(default=0)),
                ("charge_pico", models.BigIntegerField(default=0)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
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
                "db_table": "summary_job",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="SummaryItem",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("custom_id", models.CharField(max_length=256)),
                ("document", models.TextField(null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("leased", "Leased"),
                            ("answered", "Answered"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                        ],
                        default="queued",
                        max_length=8,
                    ),
                ),
                (
                    "retry_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("lease_token", models.BigIntegerField(default=0)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("request_id", models.UUIDField(null=True, unique=True)),
                (
                    "request_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), default=list, size=None
                    ),
                ),
                ("summary", models.TextField(null=True)),
                ("prompt_tokens", models.PositiveIntegerField(default=0)),
                ("cached_tokens", models.PositiveIntegerField(default=0)),
                ("completion_tokens", models.PositiveIntegerField(default=0)),
                ("charge_pico", models.BigIntegerField(default=0)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organizationrow",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="items",
                        to="batch_jobs.summaryjob",
                    ),
                ),
            ],
            options={
                "db_table": "summary_item",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddIndex(
            model_name="summaryjob",
            index=models.Index(
                condition=models.Q(("completed_at", None)),
                fields=["organization"],
                name="summary_job_unfinished",
            ),
        ),
        migrations.AddConstraint(
            model_name="summaryjob",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="summary_job_organization_id_id"
            ),
        ),
        migrations.AddConstraint(
            model_name="summaryjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "items_total__gte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("items_done"), "+", models.F("items_failed")
                        ),
                    )
                ),
                name="summary_job_counts",
            ),
        ),
        migrations.AddIndex(
            model_name="summaryitem",
            index=models.Index(
                condition=models.Q(("state__in", ("queued", "leased", "answered"))),
                fields=["organization", "id"],
                name="summary_item_unfinished",
            ),
        ),
        migrations.AddIndex(
            model_name="summaryitem",
            index=models.Index(fields=["job", "id"], name="summary_item_job"),
        ),
        migrations.AddIndex(
            model_name="summaryitem",
            index=django.contrib.postgres.indexes.GinIndex(
                fields=["request_ids"], name="summary_item_request_ids"
            ),
        ),
        migrations.AddConstraint(
            model_name="summaryitem",
            constraint=models.UniqueConstraint(
                fields=("job", "custom_id"), name="summary_item_custom_id"
            ),
        ),
        migrations.AddConstraint(
            model_name="summaryitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["queued", "leased", "answered", "done", "failed"])
                ),
                name="summary_item_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="summaryitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("lease_expires_at__isnull", False), ("state__in", ["leased", "answered"])
                    ),
                    models.Q(
                        ("lease_expires_at", None), ("state__in", ["queued", "done", "failed"])
                    ),
                    _connector="OR",
                ),
                name="summary_item_lease",
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8"), migrations.RunSQL.noop),
    ]
