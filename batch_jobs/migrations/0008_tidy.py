"""Old tables of summaries go."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0007_summaries")]

    operations = []
