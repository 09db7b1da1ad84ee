"""Who of many people may still see what they look at, in one question."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0010_standing.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0009_key_refusal")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
