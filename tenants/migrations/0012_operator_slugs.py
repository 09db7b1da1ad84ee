"""What tenants are called, for whoever is of the staff."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0012_operator_slugs.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_operators")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
