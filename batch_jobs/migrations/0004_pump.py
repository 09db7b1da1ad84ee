"""What happens to claimed items, in lists."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0003_bulk")]

    operations = []
