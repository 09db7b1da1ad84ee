"""When items are vacuumed."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0009_vacuum.sql")


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0008_tidy")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
