"""Orders of operators, which a worker carries out, and reports that it writes for them."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0001_orders.sql")


class Migration(migrations.Migration):
    initial = True
    dependencies = [("tenants", "0011_operators")]

    operations = [
        migrations.CreateModel(
            name="ReportRow",
            fields=[
                ("name", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("made_at", models.DateTimeField()),
                ("content", models.JSONField()),
            ],
            options={"db_table": "operator_report"},
        ),
        migrations.CreateModel(
            name="OrderRow",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("operator_id", models.UUIDField()),
                ("ip", models.CharField(max_length=64)),
                ("request_id", models.UUIDField(null=True)),
                ("kind", models.CharField(max_length=32)),
                ("body", models.TextField()),
                ("signature", models.BinaryField()),
                (
                    "placed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("claimed_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(db_default="", max_length=16)),
                ("answer", models.JSONField(null=True)),
            ],
            options={
                "db_table": "operator_order",
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "")),
                        fields=["placed_at"],
                        name="operator_order_waiting",
                    ),
                    models.Index(fields=["-placed_at"], name="operator_order_latest"),
                ],
            },
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
