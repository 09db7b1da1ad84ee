"""The audit log: append-only, hash-chained."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_people")]

    operations = []
