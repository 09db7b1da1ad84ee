"""Items that share another's answer end in pages; the index of those that still wait for it."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0010_copies.sql")


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0009_vacuum")]

    operations = [
        migrations.RemoveIndex(model_name="bulkitem", name="bulk_item_same"),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(
                condition=models.Q(("same_as_id__isnull", False), ("state", "waiting")),
                fields=["same_as_id", "id"],
                name="bulk_item_copies",
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8")),
    ]
