"""Files whose bytes are gone, and whose rows stay for the jobs that name them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0004_pump")]

    operations = [
        migrations.AddField(
            model_name="storedfile",
            name="swept_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RemoveIndex(model_name="storedfile", name="bulk_file_expiring"),
        migrations.RemoveIndex(model_name="storedfile", name="bulk_file_deleted"),
        migrations.AddIndex(
            model_name="storedfile",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False), ("swept_at", None)),
                fields=["expires_at"],
                name="bulk_file_expiring",
            ),
        ),
        migrations.AddIndex(
            model_name="storedfile",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False), ("swept_at", None)),
                fields=["deleted_at"],
                name="bulk_file_deleted",
            ),
        ),
    ]
