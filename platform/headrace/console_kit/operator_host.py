"""Where the operator's pages are: on every name of this house, or on one Host only, by setting.

Called by the operator's pages and their socket, and by templates that link to them.
"""

from urllib.parse import urlsplit

from django.conf import settings

PATH = "/operator/"


def is_operators(host: str) -> bool:
    """Whether a request by this Host, with its port, may find the operator's pages."""
    return settings.OPERATOR_HOST in ("", host.lower())


def operator_href() -> str:
    """What leads there, from wherever."""
    if not settings.OPERATOR_HOST:
        return PATH
    return f"{urlsplit(settings.PUBLIC_URL).scheme}://{settings.OPERATOR_HOST}{PATH}"
