"""The audit log: append-only, hash-chained."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0003_audit.sql")


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0002_people"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditHead",
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
                ("sequence", models.BigIntegerField()),
                ("hash", models.BinaryField(max_length=32)),
            ],
            options={
                "db_table": "tenants_audit_head",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="AuditRow",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("sequence", models.BigIntegerField()),
                ("occurred_at", models.DateTimeField()),
                ("actor_kind", models.CharField(max_length=16)),
                ("actor_id", models.UUIDField(null=True)),
                ("ip", models.CharField(blank=True, max_length=45)),
                ("request_id", models.UUIDField(null=True)),
                ("action", models.CharField(max_length=64)),
                ("target_kind", models.CharField(max_length=32)),
                ("target_id", models.CharField(max_length=128)),
                ("details", models.JSONField(default=dict)),
                ("previous_hash", models.BinaryField(max_length=32)),
                ("hash", models.BinaryField(max_length=32)),
            ],
            options={
                "db_table": "tenants_audit_log",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddField(
            model_name="auditrow",
            name="organization",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddIndex(
            model_name="auditrow",
            index=models.Index(
                fields=["organization", "target_id", "sequence"], name="tenants_audit_by_target"
            ),
        ),
        migrations.AddConstraint(
            model_name="auditrow",
            constraint=models.UniqueConstraint(
                fields=("organization", "sequence"), name="tenants_audit_in_order"
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
