"""What sign-in needs of its own and of the sign-in library."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0006_sign_in.sql"


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_retention"),
        ("sessions", "0001_initial"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
