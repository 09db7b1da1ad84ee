"""Aliases, price books, overrides and the life of an offer."""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
import uuid_utils.compat
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0003_catalog.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_functions"), ("tenants", "0005_retention")]

    operations = [
        migrations.CreateModel(
            name="AliasRow",
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
                ("name", models.CharField(max_length=128)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_alias",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="PriceBook",
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
                ("version", models.PositiveIntegerField()),
                ("note", models.CharField(max_length=500)),
                ("effective_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=128)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_price_book",
            },
        ),
        migrations.CreateModel(
            name="TenantPrice",
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
                ("token_class", models.CharField(max_length=16)),
                ("currency", models.CharField(max_length=3)),
                ("price_micros_per_mtok", models.BigIntegerField()),
                ("valid", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
            ],
            options={
                "db_table": "billing_tenant_price",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="TenantPriceBook",
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
                ("version", models.PositiveIntegerField()),
                ("note", models.CharField(max_length=500)),
                ("effective_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=128)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "billing_tenant_price_book",
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.RemoveConstraint(
            model_name="price",
            name="billing_price_known_class",
        ),
        migrations.RemoveField(
            model_name="offerrow",
            name="is_active",
        ),
        migrations.AddField(
            model_name="offerrow",
            name="deprecated_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="offerrow",
            name="shutdown_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="offerrow",
            name="successor",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.offerrow",
            ),
        ),
        migrations.AlterField(
            model_name="price",
            name="offer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.offerrow"
            ),
        ),
        migrations.AlterField(
            model_name="price",
            name="token_class",
            field=models.CharField(max_length=16),
        ),
        migrations.AddConstraint(
            model_name="offerrow",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("shutdown_at", None),
                    ("shutdown_at__gte", models.F("deprecated_at")),
                    _connector="OR",
                ),
                name="billing_offer_deprecated_before_shutdown",
            ),
        ),
        migrations.AddField(
            model_name="aliasrow",
            name="offer",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.offerrow",
            ),
        ),
        migrations.AddField(
            model_name="aliasrow",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="aliasrow",
            name="project",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.project",
            ),
        ),
        migrations.AddConstraint(
            model_name="pricebook",
            constraint=models.UniqueConstraint(
                fields=("version",), name="billing_price_book_version"
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="book",
            field=models.ForeignKey(
                default=uuid_utils.compat.uuid7,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.pricebook",
            ),
            preserve_default=False,
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("token_class__in", ["input", "cached_input", "cache_write", "output"])
                ),
                name="billing_price_known_class",
            ),
        ),
        migrations.AddField(
            model_name="tenantprice",
            name="offer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.offerrow"
            ),
        ),
        migrations.AddField(
            model_name="tenantprice",
            name="organization",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="tenantpricebook",
            name="organization",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.organizationrow",
            ),
        ),
        migrations.AddField(
            model_name="tenantprice",
            name="book",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.tenantpricebook",
            ),
        ),
        migrations.AddConstraint(
            model_name="aliasrow",
            constraint=models.UniqueConstraint(
                fields=("organization", "name", "project"),
                name="billing_alias_once",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantpricebook",
            constraint=models.UniqueConstraint(
                fields=("organization", "version"), name="billing_tenant_price_book_version"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantpricebook",
            constraint=models.UniqueConstraint(
                fields=("organization", "id"), name="billing_tenant_price_book_with_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantprice",
            constraint=models.CheckConstraint(
                condition=models.Q(("tier__in", ["interactive", "batch"])),
                name="billing_tenantprice_known_tier",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantprice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("token_class__in", ["input", "cached_input", "cache_write", "output"])
                ),
                name="billing_tenantprice_known_class",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantprice",
            constraint=models.CheckConstraint(
                condition=models.Q(("price_micros_per_mtok__gte", 0)),
                name="billing_tenantprice_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantprice",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[
                    ("organization", "="),
                    ("offer", "="),
                    ("tier", "="),
                    ("token_class", "="),
                    ("currency", "="),
                    ("valid", "&&"),
                ],
                name="billing_tenant_price_one_at_a_time",
            ),
        ),
        migrations.AddIndex(
            model_name="tenantprice",
            index=models.Index(fields=["organization", "offer"], name="billing_tenant_price_offer"),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
