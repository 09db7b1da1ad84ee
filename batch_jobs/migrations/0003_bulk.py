"""Stored files, jobs of both kinds, their items and attempts."""

import datetime as dt
from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).parents[1] / "sql" / "0003_bulk.sql"


class Migration(migrations.Migration):
    dependencies = [
        ("batch_jobs", "0002_erase"),
        ("tenants", "0008_lines_and_makers"),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkJob",
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
                        choices=[("batch", "Batch"), ("summary", "Summary")], max_length=8
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("validating", "Validating"),
                            ("ready", "Ready"),
                            ("in_progress", "In Progress"),
                            ("paused", "Paused"),
                            ("cancelling", "Cancelling"),
                            ("finalizing", "Finalizing"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("expired", "Expired"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="validating",
                        max_length=12,
                    ),
                ),
                ("endpoint", models.CharField(max_length=64)),
                ("model", models.CharField(default="", max_length=256)),
                ("metadata", models.JSONField(default=dict)),
                ("output_expires_s", models.PositiveIntegerField(null=True)),
                ("errors", models.JSONField(default=list)),
                ("items_total", models.PositiveIntegerField(default=0)),
                ("items_completed", models.PositiveIntegerField(default=0)),
                ("items_failed", models.PositiveIntegerField(default=0)),
                ("prompt_tokens", models.BigIntegerField(default=0)),
                ("cached_tokens", models.BigIntegerField(default=0)),
                ("completion_tokens", models.BigIntegerField(default=0)),
                ("charge_pico", models.BigIntegerField(default=0)),
                ("budget_pico", models.BigIntegerField(null=True)),
                ("enqueued_tokens", models.BigIntegerField(default=0)),
                (
                    "retry_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("claims_left", models.PositiveIntegerField(null=True)),
                ("pause_reason", models.CharField(default="", max_length=32)),
                ("tend_token", models.BigIntegerField(default=0)),
                ("tended_until", models.DateTimeField(null=True)),
                ("cursor", models.JSONField(default=dict)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("in_progress_at", models.DateTimeField(null=True)),
                ("finalizing_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("failed_at", models.DateTimeField(null=True)),
                ("expired_at", models.DateTimeField(null=True)),
                ("cancelling_at", models.DateTimeField(null=True)),
                ("cancelled_at", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("deadline_at", models.DateTimeField(null=True)),
                ("results_deleted_at", models.DateTimeField(null=True)),
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
                "db_table": "bulk_job",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="BulkItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("line", models.PositiveIntegerField()),
                ("custom_id", models.CharField(max_length=512, null=True)),
                ("place", models.BigIntegerField(default=0)),
                ("source_offset", models.BigIntegerField(default=0)),
                ("source_bytes", models.PositiveIntegerField(default=0)),
                ("digest", models.BinaryField(max_length=32, null=True)),
                ("parent_id", models.BigIntegerField(null=True)),
                ("part", models.PositiveIntegerField(default=0)),
                ("parts_left", models.PositiveIntegerField(default=0)),
                ("same_as_id", models.BigIntegerField(null=True)),
                ("copies", models.PositiveIntegerField(default=0)),
                ("bound_pico", models.BigIntegerField(default=0)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("queued", "Queued"),
                            ("leased", "Leased"),
                            ("answered", "Answered"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("expired", "Expired"),
                        ],
                        default="queued",
                        max_length=9,
                    ),
                ),
                (
                    "retry_at",
                    models.DateTimeField(default=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)),
                ),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("lease_token", models.BigIntegerField(default=0)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("request_id", models.UUIDField(null=True)),
                ("status_code", models.PositiveSmallIntegerField(null=True)),
                ("answer", models.TextField(null=True)),
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
                        to="batch_jobs.bulkjob",
                    ),
                ),
            ],
            options={
                "db_table": "bulk_item",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="BulkAttempt",
            fields=[
                (
                    "request_id",
                    models.UUIDField(
                        default=uuid_utils.compat.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
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
                    "item",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempt_rows",
                        to="batch_jobs.bulkitem",
                    ),
                ),
            ],
            options={
                "db_table": "bulk_attempt",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="StoredFile",
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
                ("purpose", models.CharField(max_length=32)),
                ("filename", models.CharField(max_length=255)),
                ("size_bytes", models.BigIntegerField()),
                ("storage_name", models.CharField(max_length=255, unique=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("expires_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
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
                "db_table": "bulk_file",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="bulkjob",
            name="error_file",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="batch_jobs.storedfile",
            ),
        ),
        migrations.AddField(
            model_name="bulkjob",
            name="input_file",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="batch_jobs.storedfile",
            ),
        ),
        migrations.AddField(
            model_name="bulkjob",
            name="output_file",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="batch_jobs.storedfile",
            ),
        ),
        migrations.AddField(
            model_name="bulkitem",
            name="source",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="batch_jobs.storedfile",
            ),
        ),
        migrations.CreateModel(
            name="SummaryPlan",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="plan",
                        serialize=False,
                        to="batch_jobs.bulkjob",
                    ),
                ),
                ("options", models.JSONField()),
                (
                    "input_file_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), size=None
                    ),
                ),
                ("starts_itself", models.BooleanField(default=True)),
                ("bytes_read", models.BigIntegerField(default=0)),
                ("documents_duplicate", models.PositiveIntegerField(default=0)),
                ("documents_known", models.PositiveIntegerField(default=0)),
                ("estimate", models.JSONField(default=dict)),
                ("warned_at", models.DateTimeField(null=True)),
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
                "db_table": "bulk_summary_plan",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="ProgressSample",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("bucket_at", models.DateTimeField()),
                ("items", models.PositiveIntegerField(default=0)),
                ("prompt_tokens", models.BigIntegerField(default=0)),
                ("completion_tokens", models.BigIntegerField(default=0)),
                ("charge_pico", models.BigIntegerField(default=0)),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="batch_jobs.bulkjob",
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
            ],
            options={
                "db_table": "bulk_progress",
                "abstract": False,
                "base_manager_name": "objects",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "bucket_at"), name="bulk_progress_bucket"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="storedfile",
            index=models.Index(fields=["organization", "project", "-id"], name="bulk_file_list"),
        ),
        migrations.AddIndex(
            model_name="storedfile",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False)),
                fields=["expires_at"],
                name="bulk_file_expiring",
            ),
        ),
        migrations.AddIndex(
            model_name="storedfile",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)),
                fields=["deleted_at"],
                name="bulk_file_deleted",
            ),
        ),
        migrations.AddConstraint(
            model_name="storedfile",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="bulk_file_of_its_tenant"
            ),
        ),
        migrations.AddIndex(
            model_name="bulkjob",
            index=models.Index(
                fields=["organization", "project", "kind", "-id"], name="bulk_job_list"
            ),
        ),
        migrations.AddIndex(
            model_name="bulkjob",
            index=models.Index(
                condition=models.Q(("state", "in_progress")),
                fields=["organization"],
                name="bulk_job_running",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkjob",
            index=models.Index(
                condition=models.Q(
                    ("state__in", ["completed", "failed", "expired", "cancelled"]), _negated=True
                ),
                fields=["state", "tended_until"],
                name="bulk_job_unfinished",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkjob",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="bulk_job_of_its_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "items_total__gte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("items_completed"), "+", models.F("items_failed")
                        ),
                    )
                ),
                name="bulk_job_counts",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "validating",
                            "ready",
                            "in_progress",
                            "paused",
                            "cancelling",
                            "finalizing",
                            "completed",
                            "failed",
                            "expired",
                            "cancelled",
                        ],
                    )
                ),
                name="bulk_job_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["batch", "summary"])), name="bulk_job_kind"
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(fields=["job", "id"], name="bulk_item_job"),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("state", "queued")),
                fields=["job", "retry_at", "place", "id"],
                name="bulk_item_queued",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("state__in", ["leased", "answered"])),
                fields=["lease_expires_at"],
                name="bulk_item_leased",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("parent_id__isnull", False)),
                fields=["parent_id"],
                name="bulk_item_parent",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("same_as_id__isnull", False)),
                fields=["same_as_id"],
                name="bulk_item_same",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("digest__isnull", False)),
                fields=["organization", "digest"],
                name="bulk_item_digest",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.UniqueConstraint(
                condition=models.Q(("custom_id__isnull", False)),
                fields=("job", "custom_id"),
                name="bulk_item_custom_id",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "waiting",
                            "queued",
                            "leased",
                            "answered",
                            "done",
                            "failed",
                            "cancelled",
                            "expired",
                        ],
                    )
                ),
                name="bulk_item_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("lease_expires_at__isnull", False), ("state__in", ["leased", "answered"])
                    ),
                    models.Q(
                        models.Q(("state__in", ["leased", "answered"]), _negated=True),
                        ("lease_expires_at", None),
                    ),
                    _connector="OR",
                ),
                name="bulk_item_lease",
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
