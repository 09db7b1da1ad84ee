"""Aliases, price books, overrides and the life of an offer."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_functions"), ("tenants", "0005_retention")]

    operations = []
