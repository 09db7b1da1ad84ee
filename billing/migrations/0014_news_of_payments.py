"""The web's role tells nobody that a payment came."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0014_news_of_payments.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_stripe_inbox"), ("tenants", "0008_lines_and_makers")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
