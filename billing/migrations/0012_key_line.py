"""A key's quotas hold for the line of its rotations."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0012_key_line.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0011_forgetting"), ("tenants", "0008_lines_and_makers")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
