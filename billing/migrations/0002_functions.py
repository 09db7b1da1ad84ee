"""The SQL functions that move money: quote, grant, hold, settle, void, renew, sweep."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).resolve().parents[1].joinpath("sql")
FILES = ["0002_quote_and_grant.sql", "0002_take_holds.sql", "0002_close_holds.sql"]


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]

    operations = [
        migrations.RunSQL(SQL.joinpath(name).read_text(encoding="utf-8")) for name in FILES
    ]
