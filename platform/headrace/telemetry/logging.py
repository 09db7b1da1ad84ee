"""Logging: one line per event, key=value, to standard error.

Prompts, completions and API keys are never logged; events carry request ids instead.
"""

import logging
import logging.config
from typing import Any

import structlog


def configure(options: dict[str, Any]) -> None:
    """Django's LOGGING_CONFIG hook; `options` is settings.LOGGING."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(
                key_order=["timestamp", "level", "logger", "event"], drop_missing=True
            ),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=options["level"], format="%(message)s")
    for name in ("uvicorn.access", "httpx", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
