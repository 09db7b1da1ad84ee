"""What sign-in needs of its own and of the sign-in library."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_retention")]

    operations = []
