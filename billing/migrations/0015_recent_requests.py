"""Indexes in the order in which requests are listed."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql", "0015_recent_requests.sql")


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_news_of_payments")]

    operations = [migrations.RunSQL(SQL.read_text(encoding="utf-8"))]
