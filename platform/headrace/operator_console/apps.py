"""The operator's console as a Django app: its templates."""

from django.apps import AppConfig


class OperatorConsoleConfig(AppConfig):
    """Found by its templates."""

    name = "headrace.operator_console"
    label = "operator_console"
