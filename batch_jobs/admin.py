"""What the operator's back office shows of bulk work, by Django's admin: to be read only.

Imported by the back office's process alone, whose site hides secrets and lets nobody write. What
was asked and answered is the tenant's, and hidden too.
"""

from django.contrib import admin

from batch_jobs.models import (
    BulkAttempt,
    BulkItem,
    BulkJob,
    ProgressSample,
    StoredFile,
    SummaryPlan,
)

register = admin.site.register

register(
    StoredFile,
    list_display=("id", "organization", "purpose", "filename", "size_bytes", "expires_at"),
)
register(
    BulkJob,
    list_display=("id", "organization", "kind", "state", "model", "items_total", "created_at"),
    list_filter=("state", "kind"),
)
register(
    SummaryPlan,
    list_display=("job", "organization", "starts_itself", "bytes_read", "warned_at"),
    exclude=("options",),
)
register(
    BulkItem,
    list_display=("id", "organization", "job_id", "line", "state", "attempts", "error_code"),
    exclude=("answer", "error_message"),
)
register(BulkAttempt, list_display=("request_id", "organization", "item_id"))
register(ProgressSample, list_display=("id", "organization", "job_id", "bucket_at", "items"))
