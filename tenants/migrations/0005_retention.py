"""Idempotency records, stored prompts and deletions."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_outbox")]

    operations = []
