"""Settings of the back office alone: the web's, with Django's admin and a look at all tenants.

People, sessions and second factors are the web's, by its role; rows are read as the housekeeper,
in transactions that write nothing. Must never be those of a process that others than this machine
reach. Named by `python -m headrace.back_office`.
"""

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from headrace.settings import *  # noqa: F403 - the rest is as the web has it
from headrace.settings import (
    DATABASES,
    INSTALLED_APPS,
    SMALL_BODY_BYTES_MAX,
    STATEMENT_MAX_S,
    TEMPLATES,
)

if "housekeeper" not in DATABASES:
    raise ImproperlyConfigured("DATABASE_HOUSEKEEPER_URL is not set")
DATABASES.pop("owner", None)
DATABASES["housekeeper"]["OPTIONS"]["options"] = (
    "-c default_transaction_read_only=on -c timezone=UTC"
    f" -c lock_timeout=2s -c statement_timeout={STATEMENT_MAX_S}s"
)
INSTALLED_APPS = [*INSTALLED_APPS, "headrace.back_office.apps.BackOfficeConfig"]
ROOT_URLCONF = "headrace.back_office.urls"
TEMPLATES = [{**TEMPLATES[0], "DIRS": [Path(__file__).parent / "templates"]}]

# Plain HTTP, on loopback only: whoever is elsewhere comes through a tunnel of their own.
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
OPERATOR_HOST = ""
TRUSTED_PROXIES = ()
CSRF_TRUSTED_ORIGINS = []
IS_SECURE = False
SESSION_COOKIE_NAME = "headrace"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = False
SECURE_HSTS_SECONDS = 0
LOGIN_REDIRECT_URL = "/"
BODY_BYTES_MAX = DATA_UPLOAD_MAX_MEMORY_SIZE = SMALL_BODY_BYTES_MAX
"""Of the forms of sign-in; nothing else takes a body."""
FORMAT_MODULE_PATH = "headrace.back_office"
