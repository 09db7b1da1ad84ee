"""What an organization demands of its members' sign-in."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).parents[1] / "sql" / "0007_second_factor.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_sign_in")]

    operations = [
        migrations.AddField(
            model_name="organizationrow",
            name="second_factor_required",
            field=models.BooleanField(db_default=False),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
