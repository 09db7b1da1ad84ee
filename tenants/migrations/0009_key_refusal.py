"""What the hold asks of a key, workers may ask too."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parents[1] / "sql" / "0009_key_refusal.sql"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_lines_and_makers")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
