"""The kit as a Django app: its templates, tags and files."""

from django.apps import AppConfig


class ConsoleKitConfig(AppConfig):
    """Found by its templates, template tags and static files."""

    name = "headrace.console_kit"
    label = "console_kit"
