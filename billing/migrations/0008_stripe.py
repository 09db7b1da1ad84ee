"""What Stripe was told, and what it told."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_invoices")]

    operations = []
