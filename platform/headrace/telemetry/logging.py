"""Logging: one line per event, key=value, to standard error, whoever wrote it.

Prompts, completions and API keys are never logged; events carry request ids instead. What other
libraries say passes the same formatter, and a key that slips into a line is struck out.
"""

import logging
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

SECRET = re.compile(r"\b(hr-|ticket\.|sk-|[rs]k_(?:live|test)_|whsec_)[A-Za-z0-9_+/=-]{12,}")
"""Our keys and tickets, keys that were imported, Stripe's keys, and what webhooks are signed by."""
QUIET = (
    "uvicorn.access",
    "uvicorn.error",  # says each socket's URL, query string included
    "celery.worker.strategy",  # a line per task received ...
    "celery.app.trace",  # ... and another per task done
    "celery.beat",  # and one per task sent
    "httpx",
    "asyncio",
    "django.security.DisallowedHost",  # a traceback for every scanner that guesses a host name
)


def configure(options: dict[str, Any]) -> None:
    """Django's LOGGING_CONFIG hook; `options` is settings.LOGGING."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                strike_secrets,
                structlog.processors.KeyValueRenderer(
                    key_order=["timestamp", "level", "logger", "event"], drop_missing=True
                ),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(options["level"])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("django.security.DisallowedHost").setLevel(logging.CRITICAL)


def strike_secrets(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: SECRETs in any text of an event become `hr-***`."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = SECRET.sub(r"\1***", value)
    return event
