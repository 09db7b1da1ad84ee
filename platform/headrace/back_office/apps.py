"""Django's admin as an app: with our site, and with what each package shows of its tables."""

from importlib import import_module

from django.contrib.admin.apps import SimpleAdminConfig

PACKAGES = ("tenants", "billing", "batch_jobs", "headrace.operator_console")
"""What libraries would register of themselves is left out: none of it knows what a secret is."""


class BackOfficeConfig(SimpleAdminConfig):
    """`django.contrib.admin`; named in the settings of the back office."""

    default_site = "headrace.back_office.site.BackOfficeSite"

    def ready(self) -> None:
        """Lets each package register its tables."""
        super().ready()
        for package in PACKAGES:
            import_module(f"{package}.admin")
