"""What the operator's pages read of all tenants' money, for whoever is of the staff."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0019_operators.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0017_clock"), ("tenants", "0011_operators")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
