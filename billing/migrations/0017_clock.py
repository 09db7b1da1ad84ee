"""Another clock than now, for history that is made up."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0017_clock.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0016_model_hours")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
