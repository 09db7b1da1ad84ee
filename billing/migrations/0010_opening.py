"""Opening an account by the organization itself."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0010_opening.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_corrections"), ("tenants", "0002_people")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
