"""What happens to claimed items, in lists."""

from pathlib import Path

from django.db import migrations

PUMP = Path(__file__).parents[1] / "sql" / "0004_pump.sql"


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0003_bulk")]

    operations = [migrations.RunSQL(PUMP.read_text(encoding="utf-8"))]
