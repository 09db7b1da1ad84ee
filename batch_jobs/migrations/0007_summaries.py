"""Summaries: reading documents, progress, results."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0006_batches")]

    operations = []
