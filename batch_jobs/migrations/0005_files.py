"""Files: uploads, quotas, sweeps."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0004_pump")]

    operations = []
