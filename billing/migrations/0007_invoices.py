"""Invoices, their lines, credit notes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_credit")]

    operations = []
