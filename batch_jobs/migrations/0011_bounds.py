"""Bounds that follow the prices, and claims that are given back."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0011_bounds.sql")


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0010_copies")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
