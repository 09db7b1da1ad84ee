"""Idempotency records, stored prompts and deletions."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0005_retention.sql")


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_outbox")]

    operations = [
        migrations.CreateModel(
            name="Erasure",
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
                ("asked_by", models.UUIDField(null=True)),
                (
                    "asked_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("token_hash", models.BinaryField(max_length=32)),
                ("token_expires_at", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("erased_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "tenants_erasure",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Exchange",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("project_id", models.UUIDField()),
                ("prompt_sealed", models.BinaryField()),
                ("answer_sealed", models.BinaryField()),
                ("truncated", models.BooleanField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("expires_at", models.DateTimeField(db_index=True)),
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
                "db_table": "tenants_exchange",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Export",
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
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("ready", "Ready"), ("failed", "Failed")],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("requested_by", models.UUIDField(null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ready_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField()),
                ("size_bytes", models.BigIntegerField(null=True)),
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
                "db_table": "tenants_export",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="ExportPart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "export",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("content", models.BinaryField()),
                (
                    "export",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="parts",
                        to="tenants.export",
                    ),
                ),
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
                "db_table": "tenants_export_part",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="IdempotentRequest",
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
                ("scope_id", models.UUIDField()),
                ("endpoint", models.CharField(max_length=200)),
                ("key", models.CharField(max_length=255)),
                ("body_hash", models.BinaryField(max_length=32)),
                ("claim", models.UUIDField()),
                ("lease_expires_at", models.DateTimeField()),
                ("status", models.PositiveSmallIntegerField(null=True)),
                ("headers", models.JSONField(default=list)),
                ("answer_sealed", models.BinaryField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("expires_at", models.DateTimeField(db_index=True)),
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
                "db_table": "tenants_idempotent_request",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddConstraint(
            model_name="export",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="tenants_export_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="export",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "pending")),
                fields=("organization",),
                name="tenants_one_pending_export",
            ),
        ),
        migrations.AddConstraint(
            model_name="export",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["pending", "ready", "failed"])),
                name="tenants_export_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="idempotentrequest",
            constraint=models.UniqueConstraint(
                fields=("organization", "scope_id", "endpoint", "key"),
                name="tenants_one_request_under_a_key",
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
