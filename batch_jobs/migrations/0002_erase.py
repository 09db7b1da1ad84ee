"""Who may delete bulk work for good."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0002_erase.sql")


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0001_initial")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
