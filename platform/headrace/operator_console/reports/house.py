"""How the house is, as a worker sees it: what waits, how large things are, which versions run.

Names no tenant and holds no secret. Called by a worker every OPERATOR_REPORT_S.
"""

import platform
import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import django
import redis
from django.conf import settings
from django.db import connections
from redis.exceptions import RedisError

import billing.facade
import tenants.facade
from headrace.gateway.announcing import ENGINES_KEY
from headrace.operator_console.reports.keeping import HOUSEKEEPER_ALIAS, ReportName, keep

TABLES = 10
"""The largest ones are named."""
PACKAGES = ("headrace", "celery", "channels", "psycopg")
LARGEST = """
    SELECT t.name, pg_total_relation_size(t.name::regclass)
      FROM (SELECT 'public.' || quote_ident(relname) AS name FROM pg_class
             WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm')) AS t
     ORDER BY 2 DESC LIMIT %s"""


def report_house() -> None:
    """Looks, and keeps what it saw."""
    keep(
        ReportName.HOUSE,
        {
            "tenants": asdict(tenants.facade.backlogs(HOUSEKEEPER_ALIAS)),
            "billing": asdict(billing.facade.backlogs(HOUSEKEEPER_ALIAS)),
            **_database(),
            **_redis(),
            "versions": {
                "Python": platform.python_version(),
                "Django": django.get_version(),
                **{name: version(name) for name in PACKAGES},
            },
        },
    )


def _database() -> dict[str, Any]:
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT pg_database_size(current_database()), current_setting('server_version'),"
            " (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),"
            " current_setting('max_connections')::int"
        )
        size_bytes, server_version, connected, connected_max = cursor.fetchone()
        cursor.execute(LARGEST, [TABLES])
        largest = [[name.removeprefix("public."), size] for name, size in cursor.fetchall()]
    return {
        "database_bytes": size_bytes,
        "postgresql": server_version,
        "connections": connected,
        "connections_max": connected_max,
        "tables": largest,
    }


def _redis() -> dict[str, Any]:
    since = time.time() - settings.ENGINE_GONE_S
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=settings.REDIS_TIMEOUT_S,
            socket_connect_timeout=settings.REDIS_TIMEOUT_S,
        ) as connection:
            queues = {
                queue.name: connection.llen(queue.name) for queue in settings.CELERY_TASK_QUEUES
            }
            engines = connection.zcount(ENGINES_KEY, since, "+inf")
            server = connection.info("server")
            used = connection.info("memory")
    except (RedisError, OSError):
        return {"queues": None, "engines": None, "redis": None, "redis_bytes": None}
    return {
        "queues": queues,
        "engines": engines,
        "redis": server.get("valkey_version") or server.get("redis_version"),
        "redis_bytes": used.get("used_memory"),
    }
