"""Roles, invitations, service accounts, and keys with scopes, limits and grace."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0002_people.sql")


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="InvitationRow",
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
                ("token_hash", models.BinaryField(max_length=32, unique=True)),
                ("email", models.EmailField(max_length=254, null=True)),
                ("role", models.CharField(max_length=16)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("expires_at", models.DateTimeField()),
                ("accepted_at", models.DateTimeField(null=True)),
                ("accepted_by", models.UUIDField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "tenants_invitation",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="ServiceAccountRow",
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
                ("name", models.CharField(max_length=120)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("disabled_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "tenants_service_account",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_membership_role",
        ),
        migrations.AddField(
            model_name="apikey",
            name="allowed_models",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=120), null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="cidrs",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=43), default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="created_by",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="end_user_limits",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="apikey",
            name="kind",
            field=models.CharField(default="project", max_length=16),
        ),
        migrations.AddField(
            model_name="apikey",
            name="limits",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="apikey",
            name="permissions",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=32), default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="replaced_by",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="revoke_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=32), null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="cache_per_project",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="cost_tags",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=64), default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="input_tokens_per_minute_max",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="output_tokens_per_minute_max",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="prompts_kept_days",
            field=models.PositiveSmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="status",
            field=models.CharField(default="active", max_length=16),
        ),
        migrations.AddField(
            model_name="organizationrow",
            name="time_zone",
            field=models.CharField(default="UTC", max_length=64),
        ),
        migrations.AddField(
            model_name="project",
            name="limits",
            field=models.JSONField(default=dict),
        ),
        migrations.AlterField(
            model_name="apikey",
            name="project",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="keys",
                to="tenants.project",
            ),
        ),
        migrations.AlterField(
            model_name="membership",
            name="role",
            field=models.CharField(
                choices=[
                    ("owner", "owner"),
                    ("admin", "admin"),
                    ("developer", "developer"),
                    ("billing", "billing"),
                    ("viewer", "viewer"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("role__in", ["owner", "admin", "developer", "billing", "viewer"])
                ),
                name="tenants_membership_role",
            ),
        ),
        migrations.AddConstraint(
            model_name="organizationrow",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["active", "suspended", "closed"])),
                name="tenants_organization_status",
            ),
        ),
        migrations.AddField(
            model_name="invitationrow",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="serviceaccountrow",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="serviceaccountrow",
            name="project",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.project",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="service_account",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.serviceaccountrow",
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "project"), ("project__isnull", False)),
                    models.Q(
                        ("kind", "admin"),
                        ("project__isnull", True),
                        ("service_account__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="tenants_key_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="invitationrow",
            constraint=models.UniqueConstraint(
                condition=models.Q(("accepted_at", None), ("revoked_at", None)),
                fields=("organization", "email"),
                name="tenants_one_open_invitation",
            ),
        ),
        migrations.AddConstraint(
            model_name="invitationrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("role__in", ["owner", "admin", "developer", "billing", "viewer"])
                ),
                name="tenants_invitation_role",
            ),
        ),
        migrations.AddConstraint(
            model_name="serviceaccountrow",
            constraint=models.UniqueConstraint(
                fields=("organization", "project", "id"), name="tenants_service_account_with_tenant"
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
