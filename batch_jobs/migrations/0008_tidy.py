"""The tables of summaries as they were before bulk jobs go, with their functions."""

from django.db import migrations

DROPPED = """
    DROP FUNCTION batch_jobs_claim(uuid[], integer);
    DROP FUNCTION batch_jobs_forfeit(uuid[]);
"""


class Migration(migrations.Migration):
    dependencies = [("batch_jobs", "0007_summaries")]

    operations = [
        migrations.RunSQL(DROPPED),
        migrations.DeleteModel("SummaryItem"),
        migrations.DeleteModel("SummaryJob"),
    ]
