"""Events for tenants: the outbox, webhook endpoints, their deliveries, mail."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_audit")]

    operations = []
