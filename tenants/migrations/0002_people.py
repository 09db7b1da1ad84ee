"""Roles, invitations, service accounts, and keys with scopes, limits and grace."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = []
