"""Quotas of several scopes, metrics and periods, held and settled in one go."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_catalog")]

    operations = []
