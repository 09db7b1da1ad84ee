"""The tenant's console as a Django app: its templates."""

from django.apps import AppConfig


class TenantConsoleConfig(AppConfig):
    """Found by its templates."""

    name = "headrace.tenant_console"
    label = "tenant_console"
