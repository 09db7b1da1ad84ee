"""Batches: validation, cancelling, expiry, output."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0005_files")]

    operations = []
