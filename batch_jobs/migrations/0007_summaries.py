"""Summaries: reading documents, progress, results."""

from pathlib import Path

from django.db import migrations, models

STEERING = Path(__file__).parents[1] / "sql" / "0007_steering.sql"


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0005_files")]

    operations = [
        migrations.AddField(
            model_name="bulkitem",
            name="input_number",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(STEERING.read_text(encoding="utf-8")),
    ]
