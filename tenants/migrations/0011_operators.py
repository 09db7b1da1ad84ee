"""What the operator's pages read of all tenants, for whoever is of the staff."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0011_operators.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_standing"), ("mfa", "0003_authenticator_type_uniq")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
