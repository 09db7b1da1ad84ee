"""Forgetting end users, and what the housekeeper may prune."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0011_forgetting.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_opening")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
