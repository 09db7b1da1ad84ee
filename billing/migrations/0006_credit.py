"""Credit grants and what burns them, top-ups, refunds."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_rollups")]

    operations = []
