"""Corrections of past charges."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_stripe")]

    operations = []
