"""What sign-in needs of its own and of the sign-in library."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0006_sign_in.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_retention"), ("sessions", "0001_initial")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
