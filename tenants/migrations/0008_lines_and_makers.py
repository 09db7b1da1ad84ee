"""Which key a key goes back to, who invited, and endings that are for good."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).parents[1] / "sql" / "0008_lines_and_makers.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_second_factor")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="line_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="invitationrow",
            name="invited_by",
            field=models.UUIDField(null=True),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
