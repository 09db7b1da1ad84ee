"""Fills the ports of the packages below when Django starts, in web and worker alike."""

from django.apps import AppConfig


class HeadraceConfig(AppConfig):
    """The roof as a Django app: its management commands, and the wiring."""

    name = "headrace"
    label = "headrace"

    def ready(self) -> None:
        """Connects batch jobs to the gateway's pipeline and to the broker."""
        import headrace.celery  # noqa: F401 - web and commands wake the worker through this app
        from batch_jobs.facade import forget_jobs, register_bulk_events
        from batch_jobs.ports import provide_pipeline_port
        from billing.facade import connect_stripe, forget_addresses, forget_end_users
        from headrace import reconciling
        from headrace.gateway.batch_port import batch_port
        from headrace.sign_in.audit import connect
        from headrace.sign_in.erasing import forget_person
        from tenants.facade import register_eraser, register_person_eraser

        provide_pipeline_port(batch_port)
        register_eraser("bulk work", forget_jobs)
        register_eraser("addresses of documents", forget_addresses)
        register_eraser("end users", forget_end_users)
        register_person_eraser("sign-in", forget_person)
        reconciling.register()
        register_bulk_events()
        connect_stripe()
        connect()
