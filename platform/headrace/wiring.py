"""Fills the ports of the packages below when Django starts, in web and worker alike."""

from django.apps import AppConfig


class HeadraceConfig(AppConfig):
    """The roof as a Django app: its management commands, and the wiring."""

    name = "headrace"
    label = "headrace"

    def ready(self) -> None:
        """Connects batch jobs to the gateway's pipeline and to the broker."""
        import headrace.celery  # noqa: F401 - web and commands wake the worker through this app
        from batch_jobs.ports import provide_completion_port
        from billing.facade import connect_stripe
        from headrace.gateway.batch_port import batch_port
        from headrace.sign_in.audit import connect

        provide_completion_port(batch_port)
        connect_stripe()
        connect()
