"""Every setting of the web, worker and management processes, read from the environment.

One file: each value has a default that works for the single-box set-up, and a name that says its
unit. The engine process is configured by its own command line (`python -m inference.server -h`).
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from headrace.client_address import parse_networks
from headrace.console_kit.colors import checked_color
from headrace.operator_console.hour_prices import parsed_price_pico, parsed_prices_pico
from headrace.sign_in import configuration as sign_in

REPOSITORY = Path(__file__).resolve().parents[2]
DATA_FOLDER = Path(os.environ.get("HEADRACE_DATA") or REPOSITORY / ".data").resolve()


def _integer(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be an integer, not {text!r}") from error


def _database(url_variable: str, statement_s: int) -> dict[str, Any]:
    url = urlsplit(os.environ.get(url_variable, ""))
    if not url.hostname:
        raise ImproperlyConfigured(
            f"{url_variable} is not set: run through manage.py or `make up`, "
            "which start the embedded servers, or point it at your PostgreSQL"
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": url.hostname,
        "PORT": str(url.port or 5432),
        "NAME": url.path.lstrip("/"),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "CONN_MAX_AGE": 0,
        # A pooled connection may be older than the server's last restart: 0.1 ms a check-out.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "application_name": "headrace",
            "connect_timeout": 3,
            # A server that is gone without a word must not hold a thread for minutes.
            "keepalives_idle": 5,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": 10_000,
            "options": f"-c lock_timeout=2s -c statement_timeout={statement_s}s -c timezone=UTC",
            "pool": {
                "min_size": 0,
                "max_size": DATABASE_POOL_MAX,
                "timeout": 5,
                # Its backoff doubles: longer, and it still waits long after the server is back.
                "reconnect_timeout": 2,
            },
        },
    }


# --- secrets -------------------------------------------------------------------------------------
SECRET_KEY = os.environ.get("HEADRACE_SECRET_KEY", "")
"""Derives each tenant's cache salt. `make up` generates one per data folder."""
if len(SECRET_KEY) < 32:
    raise ImproperlyConfigured("HEADRACE_SECRET_KEY must be set, to at least 32 characters")
DEBUG = False
PUBLIC_URL = os.environ.get("HEADRACE_PUBLIC_URL", "http://127.0.0.1:8000")
"""How people's browsers reach this house. Everything but plain HTTP on loopback is secured."""
ALLOWED_HOSTS = os.environ.get(
    "HEADRACE_ALLOWED_HOSTS",
    f"localhost,127.0.0.1,[::1],{urlsplit(PUBLIC_URL).hostname}",
).split(",")
"""Names we answer to, on every route but health. A request by any other name is 400."""
OPERATOR_HOST = os.environ.get("HEADRACE_OPERATOR_HOST", "").lower()
"""The only Host, with its port, by which /operator/ answers; empty for any of ours."""
if OPERATOR_HOST:
    ALLOWED_HOSTS.append(str(urlsplit(f"//{OPERATOR_HOST}").hostname))

# --- databases: three roles on one PostgreSQL ----------------------------------------------------
DATABASE_POOL_MAX = _integer("HEADRACE_DATABASE_POOL_MAX", 16)
"""Connections of one process: the gateway's threads keep half, REST views share the rest."""
STATEMENT_MAX_S = 8
"""Of role app, below DATABASE_ANSWER_MAX_S: the server gives up before its caller does."""
DATABASES = {"default": _database("DATABASE_URL", STATEMENT_MAX_S)}
if os.environ.get("DATABASE_OWNER_URL"):
    DATABASES["owner"] = _database("DATABASE_OWNER_URL", 0)
if os.environ.get("DATABASE_HOUSEKEEPER_URL"):
    DATABASES["housekeeper"] = _database("DATABASE_HOUSEKEEPER_URL", 0)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "tenants.User"
REDIS_URL = os.environ.get("REDIS_URL", "")
REDIS_TIMEOUT_S = 0.5

# --- application ---------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    # Before the sign-in library: its pages look like ours.
    "headrace.console_kit",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    *sign_in.saml_apps(os.environ),
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django.contrib.postgres",
    "rest_framework",
    "channels",
    "tenants",
    "billing",
    "batch_jobs",
    "headrace.tenant_console",
    "headrace.operator_console",
    "headrace.wiring.HeadraceConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "headrace.sign_in.middleware.PagePolicyMiddleware",
    "headrace.sign_in.middleware.KnownFaultsMiddleware",
    "headrace.request_rates.RequestRateMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]
ROOT_URLCONF = "headrace.urls"
APPEND_SLASH = False
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "headrace.console_kit.branding.brand",
            ]
        },
    }
]
STATIC_URL = "/static/"
STATIC_COPIES_FOLDER = DATA_FOLDER / "static"
"""Compressed copies of what browsers load, made when first asked for."""
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
CACHES = {
    # What only sign-in counts: attempts by address and account. Redis away, nobody may try.
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL or "redis://127.0.0.1:1",
        "KEY_PREFIX": "headrace:sign-in",
        "OPTIONS": {"socket_timeout": REDIS_TIMEOUT_S, "socket_connect_timeout": REDIS_TIMEOUT_S},
    }
}
REST_FRAMEWORK = {
    "EXCEPTION_HANDLER": "headrace.errors.render_rest_exception",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "headrace.management_api.authentication.ApiKeyAuthentication"
    ],
    "DEFAULT_SCHEMA_CLASS": "headrace.management_api.openapi.HouseSchema",
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["headrace.management_api.bodies.BoundedJsonParser"],
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Headrace",
    "DESCRIPTION": "A multi-tenant, metered and billed LLM API. Told in words in docs/api.md.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": r"/(api/)?v1",
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["headrace.management_api.openapi.complete"],
}

# --- the console ---------------------------------------------------------------------------------
CONSOLE_NAME = os.environ.get("HEADRACE_CONSOLE_NAME", "Headrace")
CONSOLE_LOGO = os.environ.get("HEADRACE_CONSOLE_LOGO", "kit/logo.svg")
CONSOLE_ICON = os.environ.get("HEADRACE_CONSOLE_ICON", "kit/logo.svg")
"""Paths under the static files; an operator's own lie in HEADRACE_STATIC_FOLDER."""
STATICFILES_DIRS = [folder for folder in [os.environ.get("HEADRACE_STATIC_FOLDER", "")] if folder]
CONSOLE_ACCENT = checked_color(os.environ.get("HEADRACE_CONSOLE_ACCENT", "#0b5c92"))

ANNOUNCE_S = 1
"""How often a process tells the others whose numbers moved, and how its engine is."""
ANNOUNCED_MAX = 10_000
"""Organizations of one such message; a page of one that is left out shows it a little later."""
ENGINE_GONE_S = 5
"""An engine of which no process has told for so long is no part of the fleet."""
ENGINE_TRAIL_S = 300
ENGINE_TRAIL_EVERY_S = 5
"""How far back an engine's report tells what it had done by then, and at which distance."""
AUDIT_CSV_ROWS_MAX = 10_000
"""Entries of one file of the audit log; whoever asks for more asks for fewer days."""
LIVE_S = 1
"""How often a live page hears of news, and how often what it shows is read, at most."""
LIVE_REFRESH_S = _integer("HEADRACE_LIVE_REFRESH_S", 30)
"""How often it is read where nothing is known to have moved: windows reset by themselves."""
LIVE_CHECK_S = _integer("HEADRACE_LIVE_CHECK_S", 2)
"""How often it is asked whether those who look still may."""
LIVE_VIEWERS_MAX = _integer("HEADRACE_LIVE_VIEWERS_MAX", 1000)
"""Live pages of one process; more are told to come back."""
LIVE_VIEWERS_PER_PERSON_MAX = 32
LIVE_TOPICS_MAX = 32
"""Topics of one page."""
LIVE_MESSAGE_BYTES_MAX = 256 * 1024
"""A part of a page that is larger is not sent."""
LIVE_WRITE_TIMEOUT_S = 10
"""Whoever takes no message for so long is dropped, and may come back."""
LIVE_MOVED_MAX = 20_000
"""Organizations of which a process remembers when they last moved."""

# --- people signing in ---------------------------------------------------------------------------
IS_SECURE = sign_in.is_secure(PUBLIC_URL)
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_NAME = "__Host-headrace" if IS_SECURE else "headrace"
SESSION_COOKIE_AGE = _integer("HEADRACE_SESSION_AGE_S", 7 * 24 * 3600)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_SECURE
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
"""Lax, for links in mail and the way back from an identity provider."""
CSRF_FAILURE_VIEW = "headrace.urls.csrf_failure"
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
if OPERATOR_HOST:
    CSRF_TRUSTED_ORIGINS.append(f"{urlsplit(PUBLIC_URL).scheme}://{OPERATOR_HOST}")
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if IS_SECURE else 0
SECURE_REFERRER_POLICY = "same-origin"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/console/"
LOGOUT_REDIRECT_URL = LOGIN_URL
ACCOUNT_ADAPTER = "headrace.sign_in.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_MAX_EMAIL_ADDRESSES = 5
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
"""For addresses, providers and a first password: who takes those over can sign in as the person."""
ACCOUNT_REAUTHENTICATION_TIMEOUT = _integer("HEADRACE_RECENT_SIGN_IN_S", 300)
"""For how many seconds a sign-in is recent enough for a sensitive act (a key, a pay-out)."""
MFA_ADAPTER = "headrace.sign_in.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "Headrace"
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not IS_SECURE
SOCIALACCOUNT_ADAPTER = "headrace.sign_in.adapters.ProviderAdapter"
SOCIALACCOUNT_PROVIDERS = sign_in.providers(os.environ)
SOCIALACCOUNT_ONLY = False
SOCIALACCOUNT_STORE_TOKENS = False
ORGANIZATIONS_PER_USER_MAX = _integer("HEADRACE_ORGANIZATIONS_PER_USER_MAX", 10)
"""Organizations one person may found and own."""

# --- the engine ----------------------------------------------------------------------------------
ENGINE_SOCKET = Path(os.environ.get("HEADRACE_ENGINE_SOCKET", DATA_FOLDER / "run" / "engine.sock"))
MODEL_BUNDLE = Path(
    os.environ.get("HEADRACE_MODEL_BUNDLE", DATA_FOLDER / "models" / "smollm2-135m-instruct")
)
"""Folder of the tokenizer bundle (`inference.tokenizer.bundle`)."""

# --- limits --------------------------------------------------------------------------------------
BODY_BYTES_MAX = _integer("HEADRACE_BODY_BYTES_MAX", 20 * 1024 * 1024)
DATA_UPLOAD_MAX_MEMORY_SIZE = BODY_BYTES_MAX
SMALL_BODY_BYTES_MAX = 1024 * 1024
"""Of a page's form and a message of Stripe's."""
BODY_READ_TIMEOUT_S = _integer("HEADRACE_BODY_READ_TIMEOUT_S", 30)
BODIES_BYTES_MAX = _integer("HEADRACE_BODIES_BYTES_MAX", 128 * 1024 * 1024)
"""All bodies being read by one process together."""
JSON_DEPTH_MAX = 64
JSON_VALUES_MAX = 1_000_000
MESSAGES_MAX = 2048
CHOICES_MAX = _integer("HEADRACE_CHOICES_MAX", 16)
"""`n` of one request; each choice holds max_tokens of money and of the minute."""
COMPLETION_PROMPTS_MAX = 128
EMBEDDING_INPUTS_MAX = 2048
EMBEDDING_NUMBERS_MAX = 2048 * 1024
"""Numbers of all vectors of one request: 18 bytes each in a body of floats."""
PROMPTS_TOKENS_MAX = 300_000
"""Token ids in one body, and tokens of all prompts of a request that has several."""
LOGPROBS_MAX = 50_000
"""Log probabilities of one request: about 100 bytes each here, 15 in the engine's frame."""
GRAMMAR_DEPTH_MAX = 32
"""Nesting of a JSON schema, in objects and arrays."""
REQUESTS_LIVE_MAX = _integer("HEADRACE_REQUESTS_LIVE_MAX", 1024)
"""Requests one process carries at once; more are answered 503."""
STREAM_KEEPALIVE_S = _integer("HEADRACE_STREAM_KEEPALIVE_S", 15)
SOCKET_SEND_BYTES = _integer("HEADRACE_SOCKET_SEND_BYTES", 256 * 1024)
"""The kernel's send buffer of one connection: what a client that stops reading can hold back."""
STREAM_WRITE_TIMEOUT_S = _integer("HEADRACE_STREAM_WRITE_TIMEOUT_S", 30)
"""A client that takes no byte for this long loses its stream; what it had is charged."""
ENGINE_SILENCE_MAX_S = _integer("HEADRACE_ENGINE_SILENCE_MAX_S", 300)
"""A request of which the engine says nothing for this long, queueing included, is given up."""
ENGINE_QUEUE_TIMEOUT_S = _integer("HEADRACE_ENGINE_QUEUE_TIMEOUT_S", 120)
"""An interactive request that has not started by then is answered 503, at no charge."""
REQUEST_DEADLINE_S = _integer("HEADRACE_REQUEST_DEADLINE_S", 600)
"""An interactive request that is not done by then ends; what it had handed over is charged. Stock
clients give up after as long."""
ABORT_TIMEOUT_S = _integer("HEADRACE_ABORT_TIMEOUT_S", 30)
"""How long an aborted request may take to report its final counts."""
WEBSOCKET_REQUESTS_MAX = 16
WEBSOCKETS_PER_KEY_MAX = 64
WEBSOCKET_MESSAGE_BYTES_MAX = 1024 * 1024
SOCKET_TICKET_TTL_S = 60
WEBSOCKET_IDLE_TIMEOUT_S = _integer("HEADRACE_WEBSOCKET_IDLE_TIMEOUT_S", 600)
KEY_CACHE_TTL_S = 1
KEY_CACHE_ENTRIES_MAX = 4096
FAILED_LOOKUPS_PER_MINUTE_MAX = _integer("HEADRACE_FAILED_LOOKUPS_PER_MINUTE_MAX", 60)
"""Unknown keys from one address, for each process; then its keys are not looked up for a while."""
ACTOR_READS_PER_MINUTE_MAX = _integer("HEADRACE_ACTOR_READS_PER_MINUTE_MAX", 1200)
ACTOR_WRITES_PER_MINUTE_MAX = _integer("HEADRACE_ACTOR_WRITES_PER_MINUTE_MAX", 240)
"""Requests of one person or key to the management API."""
ADDRESS_READS_PER_MINUTE_MAX = _integer("HEADRACE_ADDRESS_READS_PER_MINUTE_MAX", 6000)
ADDRESS_WRITES_PER_MINUTE_MAX = _integer("HEADRACE_ADDRESS_WRITES_PER_MINUTE_MAX", 1200)
"""Requests from one address to everything but the token routes: an office may share one."""
SIGN_IN_FORMS_PER_MINUTE_MAX = _integer("HEADRACE_SIGN_IN_FORMS_PER_MINUTE_MAX", 120)
"""Forms sent from one address; the sign-in library counts attempts by account beside it."""
REVOCATION_POLL_S = 1
DATABASE_THREADS_MAX = DATABASE_POOL_MAX // 2
DATABASE_ANSWER_MAX_S = 10
"""A database that says nothing for this long counts as away."""
REST_ANSWER_MAX_S = 15
"""How long a REST view may take before its client is told that we are overloaded."""
REST_PART_MAX_S = 60
"""How long a part of a long answer, once that has begun, may take to be made and sent."""
HEADERS_BYTES_MAX = 64 * 1024
HEADERS_TIMEOUT_S = _integer("HEADRACE_HEADERS_TIMEOUT_S", 15)
CONNECTIONS_MAX = _integer("HEADRACE_CONNECTIONS_MAX", 4096)
TRUSTED_PROXIES = parse_networks(os.environ.get("HEADRACE_TRUSTED_PROXIES", "").split(","))
"""Networks whose X-Forwarded-For is believed; by default nobody's."""
DRAIN_TIMEOUT_S = _integer("HEADRACE_DRAIN_TIMEOUT_S", 20)
STALL_S = _integer("HEADRACE_STALL_S", 20)
"""Readiness fails when an engine with work has made no step for this long."""

# --- money ---------------------------------------------------------------------------------------
HOLD_RENEW_S = _integer("HEADRACE_HOLD_RENEW_S", 30)
HOLD_LAPSE_S = _integer("HEADRACE_HOLD_LAPSE_S", 120)
"""The sweeper looks only at holds that nobody renewed for this long."""
JOURNAL_WAIT_S = _integer("HEADRACE_JOURNAL_WAIT_S", 900)
"""How long a lapsed hold waits for an engine's journal before it is voided with a zero charge."""
SWEEP_S = _integer("HEADRACE_SWEEP_S", 30)
USAGE_ROLL_UP_S = _integer("HEADRACE_USAGE_ROLL_UP_S", 5)
"""How often queued usage is counted in the rollups. Reports are exact in between, too."""

# --- events: webhooks and mail -------------------------------------------------------------------
OUTBOX_PUMP_S = _integer("HEADRACE_OUTBOX_PUMP_S", 5)
"""How often the beat has waiting events, deliveries and mail looked after."""
RETENTION_SWEEP_S = _integer("HEADRACE_RETENTION_SWEEP_S", 30)
"""How often exports and erasures are looked for, and what has expired is deleted."""
ORGANIZATION_MAILS_PER_DAY_MAX = _integer("HEADRACE_ORGANIZATION_MAILS_PER_DAY_MAX", 500)
"""Mail of one organization in 24 hours, invitations included; what is over it is given up."""
WEBHOOK_LOOPBACK_ALLOWED = os.environ.get("HEADRACE_WEBHOOK_LOOPBACK_ALLOWED", "") == "1"
"""Lets webhooks go to this machine, by plain http too: for demos and tests, never for tenants."""
SMTP_HOST = os.environ.get("HEADRACE_SMTP_HOST", "")
"""Empty: mail is written to files in the data folder instead of being sent."""
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend"
    if SMTP_HOST
    else "django.core.mail.backends.filebased.EmailBackend"
)
EMAIL_FILE_PATH = str(DATA_FOLDER / "outbox")
EMAIL_HOST = SMTP_HOST
EMAIL_PORT = _integer("HEADRACE_SMTP_PORT", 587)
EMAIL_HOST_USER = os.environ.get("HEADRACE_SMTP_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("HEADRACE_SMTP_PASSWORD", "")
EMAIL_USE_TLS = EMAIL_PORT != 465
EMAIL_USE_SSL = EMAIL_PORT == 465
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = os.environ.get("HEADRACE_MAIL_FROM", "Headrace <headrace@localhost>")

FAILPOINT_FILE = (
    Path(os.environ["HEADRACE_FAILPOINT_FILE"]) if "HEADRACE_FAILPOINT_FILE" in os.environ else None
)
"""For crash tests only: see `lifecycle.failpoints`."""

# --- Stripe ---------------------------------------------------------------------------------------
STRIPE_API_KEY = os.environ.get("STRIPE_API_KEY", "")
"""Without one nobody can pay in; the single-box house runs a stand-in of Stripe then."""
STRIPE_API_BASE = os.environ.get("STRIPE_API_BASE", "")
"""Another address than Stripe's own, for the stand-in."""
STRIPE_WEBHOOK_SECRETS = tuple(
    filter(None, os.environ.get("STRIPE_WEBHOOK_SECRETS", "").replace(" ", "").split(","))
)
"""All that are valid now: two while one is being rotated."""
STRIPE_TIMEOUT_S = _integer("HEADRACE_STRIPE_TIMEOUT_S", 6)
"""Of one try; with the client's own retry below REST_ANSWER_MAX_S."""
STRIPE_INBOX_S = _integer("HEADRACE_STRIPE_INBOX_S", 5)
"""How often Stripe's messages are applied, should the wake-up that each sends be lost."""
STRIPE_SETTLE_S = _integer("HEADRACE_STRIPE_SETTLE_S", 60)
"""How often we ask Stripe about payments whose message is overdue."""
STRIPE_EXPORT_S = _integer("HEADRACE_STRIPE_EXPORT_S", 600)
"""How often usage of closed hours goes to Stripe's meters."""
STRIPE_COMPARE_S = _integer("HEADRACE_STRIPE_COMPARE_S", 24 * 3600)
"""How often Stripe's sums are compared with ours."""

# --- bulk work -----------------------------------------------------------------------------------
BATCH_TURN_S = _integer("HEADRACE_BATCH_TURN_S", 20)
"""How long one turn of the pump claims: a task far shorter than the broker's visibility timeout."""
BATCH_IN_FLIGHT_MAX = _integer("HEADRACE_BATCH_IN_FLIGHT_MAX", 64)
"""Requests that one worker process runs at once, if the engines have room."""
BATCH_CLAIM_MAX = _integer("HEADRACE_BATCH_CLAIM_MAX", 64)
"""Items of one claim."""
BATCH_CLAIM_JOBS_MAX = _integer("HEADRACE_BATCH_CLAIM_JOBS_MAX", 16)
"""Jobs that one claim looks into; of more, some are drawn by lot."""
BATCH_LIST_MAX = _integer("HEADRACE_BATCH_LIST_MAX", 128)
"""Answers, ends or returns of one transaction."""
BATCH_COPIES_MAX = 5000
"""Items that end in one transaction with those whose answers they share."""
BATCH_LEASE_S = _integer("HEADRACE_BATCH_LEASE_S", 60)
BATCH_LEASE_RENEWALS_MAX = _integer("HEADRACE_BATCH_LEASE_RENEWALS_MAX", 360)
"""A lease is renewed every sixth of BATCH_LEASE_S: what is stuck for an hour is given up."""
BATCH_ATTEMPTS_MAX = _integer("HEADRACE_BATCH_ATTEMPTS_MAX", 10)
"""Of one item; then it may be what ends its workers. A worker that is killed every few seconds for
other reasons must not fail what it had in flight."""
BATCH_RETRY_S = _integer("HEADRACE_BATCH_RETRY_S", 5)
"""How long an item whose attempt failed waits before it is claimed again, at first."""
BATCH_STOP_S = _integer("HEADRACE_BATCH_STOP_S", 8)
"""How long a worker that is told to end waits for its bulk requests; the rest is given back."""
BATCH_PUMP_S = _integer("HEADRACE_BATCH_PUMP_S", 5)
"""How often the beat wakes a pump, whatever became of the other wake-ups."""
BATCH_WAKE_EXPIRES_S = 60
"""A wake-up that no worker took for this long is dropped; the beat sends the next one."""
BATCH_FILE_BYTES_MAX = _integer("HEADRACE_BATCH_FILE_BYTES_MAX", 200 * 1024 * 1024)
BATCH_TEND_S = _integer("HEADRACE_BATCH_TEND_S", 30)
"""How long one task looks after jobs before it makes room for another."""
BATCH_TEND_LEASE_S = _integer("HEADRACE_BATCH_TEND_LEASE_S", 60)
"""A job whose tender is silent for this long is another's."""
BATCH_TEND_RENEWALS_MAX = 180
"""A lease is renewed every third of BATCH_TEND_LEASE_S, so a stuck tender loses its job in the
end."""
BATCH_TEND_WAIT_S = _integer("HEADRACE_BATCH_TEND_WAIT_S", 2)
"""How often the beat has jobs looked after, and how soon one that waits is looked at again."""
BATCH_SWEEP_S = _integer("HEADRACE_BATCH_SWEEP_S", 60)
"""How often old files and rows are looked for."""
BATCH_TEND_RETRY_S = _integer("HEADRACE_BATCH_TEND_RETRY_S", 30)
"""How long a job that could not be looked after is left alone."""
BATCH_LINES_MAX = _integer("HEADRACE_BATCH_LINES_MAX", 50_000)
BATCH_LINE_BYTES_MAX = _integer("HEADRACE_BATCH_LINE_BYTES_MAX", 1024 * 1024)
BATCH_ERRORS_SHOWN_MAX = _integer("HEADRACE_BATCH_ERRORS_SHOWN_MAX", 1000)
"""Of a batch's bad lines, how many its object shows; a file has them all."""
BATCH_JOBS_MAX = _integer("HEADRACE_BATCH_JOBS_MAX", 200)
"""Unfinished jobs of one organization."""
BATCH_ENQUEUED_TOKENS_MAX = _integer("HEADRACE_BATCH_ENQUEUED_TOKENS_MAX", 5_000_000_000)
"""Prompt tokens of one organization's unfinished jobs together, as estimated."""
BATCH_WINDOW_S = _integer("HEADRACE_BATCH_WINDOW_S", 24 * 3600)
"""How long after its creation a batch that is not done expires."""
BATCH_END_GRACE_S = _integer("HEADRACE_BATCH_END_GRACE_S", 600)
"""What is being computed when its job is cancelled or expires may go on for this long."""
BATCH_STAGED_S = _integer("HEADRACE_BATCH_STAGED_S", 24 * 3600)
"""How long a file that its writer never published is kept."""
BATCH_MAILED_AFTER_S = _integer("HEADRACE_BATCH_MAILED_AFTER_S", 600)
"""The end of a job that took less is not mailed: somebody waited for it, or a program did."""
BATCH_ITEMS_KEPT_DAYS = _integer("HEADRACE_BATCH_ITEMS_KEPT_DAYS", 7)
"""How long the rows of a finished batch are kept; its files have it all."""
SUMMARY_MODEL = os.environ.get("HEADRACE_SUMMARY_MODEL", "smollm2-135m-instruct")
"""What a summarisation job asks when it names no model."""
SUMMARY_INPUT_FILES_MAX = _integer("HEADRACE_SUMMARY_INPUT_FILES_MAX", 1000)
SUMMARY_JOB_DAYS_MAX = _integer("HEADRACE_SUMMARY_JOB_DAYS_MAX", 30)
"""A summarisation job that is not done by then expires."""
SUMMARY_RESULTS_KEPT_DAYS = _integer("HEADRACE_SUMMARY_RESULTS_KEPT_DAYS", 30)
"""After its end; its totals are kept."""
SUMMARY_WATCHED_MAX = _integer("HEADRACE_SUMMARY_WATCHED_MAX", 500)
"""Previews, and deadlines in danger, that one round of tending looks at."""
SUMMARY_DOCUMENTS_MAX = _integer("HEADRACE_SUMMARY_DOCUMENTS_MAX", 10_000_000)
SUMMARY_DOCUMENT_BYTES_MAX = _integer("HEADRACE_SUMMARY_DOCUMENT_BYTES_MAX", 8 * 1024**2)
"""Of one document's text."""
SUMMARY_RAW_BYTES_MAX = _integer("HEADRACE_SUMMARY_RAW_BYTES_MAX", 64 * 1024**2)
"""Of one PDF or HTML document."""
SUMMARY_PARTS_MAX = _integer("HEADRACE_SUMMARY_PARTS_MAX", 4096)
"""How many parts a document that is longer than the context may be cut into."""
SUMMARY_ZIP_ENTRIES_MAX = _integer("HEADRACE_SUMMARY_ZIP_ENTRIES_MAX", 200_000)
SUMMARY_ZIP_BYTES_MAX = _integer("HEADRACE_SUMMARY_ZIP_BYTES_MAX", 64 * 1024**3)
"""What all entries of a ZIP file may unpack to."""
SUMMARY_ZIP_RATIO_MAX = _integer("HEADRACE_SUMMARY_ZIP_RATIO_MAX", 200)
"""How many times its packed size one entry may unpack to."""
SUMMARY_READ_S = _integer("HEADRACE_SUMMARY_READ_S", 20)
"""How long a job's documents are read before other jobs have their turn."""
SUMMARY_READ_TRIES_MAX = 8
"""A job whose reader was killed this often before it got a page further fails."""
SUMMARY_PAGE_DOCUMENTS = 1000
"""Documents that are read, stored and committed together, below both bounds that follow."""
SUMMARY_PAGE_BYTES_MAX = 8 * 1024**2
SUMMARY_PAGE_S = 5
SUMMARY_BAD_ROWS_MAX = 100
"""An input whose first so many documents are all unreadable fails its job at once."""
SUMMARY_EXTRACT_MEMORY_BYTES_MAX = _integer("HEADRACE_SUMMARY_EXTRACT_MEMORY_BYTES_MAX", 1024**3)
"""Of the process that takes the text out of PDF and HTML."""
SUMMARY_EXTRACT_S = _integer("HEADRACE_SUMMARY_EXTRACT_S", 20)
"""Seconds of processor time for one document; half as many again by the clock."""
SUMMARY_EXTRACT_PAGES_MAX = 5000
SUMMARY_EXTRACT_DOCUMENTS_MAX = 1000
"""A process is replaced after so many documents."""
RESULTS_PAGE_ROWS = 1000
"""Results that a download reads, and so holds in memory, at once."""
RESULTS_SHARD_ROWS = _integer("HEADRACE_RESULTS_SHARD_ROWS", 100_000)
"""Documents of one Parquet file."""
PROGRESS_S = 1
"""How often the sockets that follow a job are told of it."""
TEMPORARY_FOLDER = DATA_FOLDER / "tmp"
"""Where uploads lie until they are stored, in files without a name that no crash leaves behind."""
FILE_UPLOAD_TEMP_DIR = TEMPORARY_FOLDER if TEMPORARY_FOLDER.is_dir() else None
"""For the S3 backend's reads; Django refuses a folder that is not there."""
S3_BUCKET = os.environ.get("HEADRACE_S3_BUCKET", "")
"""Empty: files lie in the data folder. A bucket needs the extra `s3`."""
S3_ENDPOINT_URL = os.environ.get("HEADRACE_S3_ENDPOINT_URL", "")
"""Another address than Amazon's."""
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "headrace.static_files.MarkedStorage"},
    "bulk": {
        "BACKEND": "batch_jobs.files.object_storage.ObjectStorage",
        "OPTIONS": {
            "bucket_name": S3_BUCKET,
            "endpoint_url": S3_ENDPOINT_URL or None,
            "region_name": os.environ.get("HEADRACE_S3_REGION") or None,
            "access_key": os.environ.get("HEADRACE_S3_ACCESS_KEY") or None,
            "secret_key": os.environ.get("HEADRACE_S3_SECRET_KEY") or None,
            "location": os.environ.get("HEADRACE_S3_PREFIX", ""),
        },
    }
    if S3_BUCKET
    else {
        "BACKEND": "batch_jobs.files.local_storage.LocalStorage",
        "OPTIONS": {"location": DATA_FOLDER / "bulk_files"},
    },
}
FILE_BYTES_MAX = _integer("HEADRACE_FILE_BYTES_MAX", 512 * 1024 * 1024)
"""Of an uploaded file; one for a batch has BATCH_FILE_BYTES_MAX."""
FILE_LIFE_S = _integer("HEADRACE_BATCH_FILE_LIFE_S", 30 * 24 * 3600)
"""How long a batch's files are kept unless told otherwise."""
STORAGE_BYTES_MAX = _integer("HEADRACE_STORAGE_BYTES_MAX", 50 * 1024**3)
"""All files of an organization together."""
FILES_MAX = _integer("HEADRACE_FILES_MAX", 20_000)
"""Files of an organization."""
FILES_LISTED_MAX = 10_000
UPLOADS_MAX = _integer("HEADRACE_UPLOADS_MAX", 8)
"""Files one process takes in at once; no organization has more than a quarter of them."""
UPLOADS_BYTES_MAX = _integer("HEADRACE_UPLOADS_BYTES_MAX", 4 * 1024**3)
"""All uploads under way in one process together, as they lie on its disk."""
UPLOAD_STALL_S = _integer("HEADRACE_UPLOAD_STALL_S", 30)
"""An upload of which no byte comes for this long is given up."""
UPLOAD_BYTES_PER_S_MIN = _integer("HEADRACE_UPLOAD_BYTES_PER_S_MIN", 64 * 1024)
"""And one that is slower than this on the whole."""
UPLOAD_MAX_S = _integer("HEADRACE_UPLOAD_MAX_S", 3600)
"""And one whose client was waited for longer than this: it holds a place."""
UPLOAD_FORM_BYTES_MAX = 64 * 1024
"""Of an upload's form, without its file."""
FILE_PART_BYTES = 1024 * 1024
"""A download is read, and so held in memory, in parts of this size."""
FILE_THREADS_MAX = 4
"""Parts that one process reads at once."""
FILES_OPEN_MAX = _integer("HEADRACE_FILES_OPEN_MAX", 64)
"""Files a pump keeps open between two looks into them."""
FILES_OPEN_S = 60
"""And for how long, so that a file that was deleted is really gone."""
FILES_SWEPT_MAX = 200
"""Files that one sweep removes."""
FILE_SWEEP_GRACE_S = 300
"""After its expiry: whoever began to use a file in its last moment has said so by then."""
ORPHAN_AGE_MIN_S = 24 * 3600
"""Stored bytes that no row names are removed when they are this old."""
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_FOLDER / "run" / "celerybeat-schedule")
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(name), routing_key=name)
    for name in ("celery", "webhooks", "mail", "retention", "billing", "batch", "tending")
]
"""A worker without `-Q` takes from all of them."""
CELERY_TASK_ROUTES = {
    "batch_jobs.pump": {"queue": "batch"},
    "batch_jobs.tend": {"queue": "tending"},
    "batch_jobs.sweep": {"queue": "tending"},
    "billing.*": {"queue": "billing"},
    "headrace.reconcile": {"queue": "billing"},
    "tenants.deliver_webhooks": {"queue": "webhooks"},
    "tenants.send_mail": {"queue": "mail"},
    "tenants.keep_and_forget": {"queue": "retention"},
}
CELERY_BEAT_SCHEDULE = {
    "forget sessions that ended": {"task": "headrace.forget_sessions", "schedule": 3600},
    "deliver webhooks": {
        "task": "tenants.deliver_webhooks",
        "schedule": OUTBOX_PUMP_S,
        "options": {"expires": OUTBOX_PUMP_S},
    },
    "keep and forget": {
        "task": "tenants.keep_and_forget",
        "schedule": RETENTION_SWEEP_S,
        "options": {"expires": RETENTION_SWEEP_S},
    },
    "send mail": {
        "task": "tenants.send_mail",
        "schedule": OUTBOX_PUMP_S,
        "options": {"expires": OUTBOX_PUMP_S},
    },
    "sweep lapsed holds": {"task": "headrace.sweep_holds", "schedule": SWEEP_S},
    "roll usage up": {
        "task": "billing.roll_up_usage",
        "schedule": USAGE_ROLL_UP_S,
        "options": {"expires": USAGE_ROLL_UP_S},
    },
    "apply messages of stripe": {
        "task": "billing.apply_stripe_messages",
        "schedule": STRIPE_INBOX_S,
        "options": {"expires": STRIPE_INBOX_S},
    },
    "settle payments by stripe": {
        "task": "billing.settle_stripe",
        "schedule": STRIPE_SETTLE_S,
        "options": {"expires": STRIPE_SETTLE_S},
    },
    "export usage to stripe": {
        "task": "billing.export_to_stripe",
        "schedule": STRIPE_EXPORT_S,
        "options": {"expires": STRIPE_EXPORT_S},
    },
    "compare with stripe": {"task": "billing.compare_with_stripe", "schedule": STRIPE_COMPARE_S},
    "tend jobs": {
        "task": "batch_jobs.tend",
        "schedule": BATCH_TEND_WAIT_S,
        "options": {"expires": BATCH_TEND_WAIT_S},
    },
    "sweep bulk work": {
        "task": "batch_jobs.sweep",
        "schedule": BATCH_SWEEP_S,
        "options": {"expires": BATCH_SWEEP_S},
    },
    "pump bulk work": {
        "task": "batch_jobs.pump",
        "schedule": BATCH_PUMP_S,
        "options": {"expires": BATCH_PUMP_S},
    },
}

# --- money ---------------------------------------------------------------------------------------
INVOICE_ISSUER = os.environ.get("HEADRACE_INVOICE_ISSUER", "Headrace").replace("\\n", "\n")
"""Who invoices are from, in lines of text."""
CREDIT_TEND_S = _integer("HEADRACE_CREDIT_TEND_S", 60)
"""How often credit that begins or ends is looked for, balances are watched and recharged."""
INVOICE_CLOSE_S = _integer("HEADRACE_INVOICE_CLOSE_S", 3600)
BILLING_PRUNE_S = _integer("HEADRACE_BILLING_PRUNE_S", 3600)
"""How often counters and messages that are more than a year old are looked for, and deleted."""
CELERY_BEAT_SCHEDULE |= {
    "prune billing": {
        "task": "billing.prune",
        "schedule": BILLING_PRUNE_S,
        "options": {"expires": BILLING_PRUNE_S},
    },
    "tend credit": {
        "task": "billing.tend_credit",
        "schedule": CREDIT_TEND_S,
        "options": {"expires": CREDIT_TEND_S},
    },
    "close periods": {
        "task": "billing.close_periods",
        "schedule": INVOICE_CLOSE_S,
        "options": {"expires": INVOICE_CLOSE_S},
    },
}

# --- the operator's pages -------------------------------------------------------------------------
OPERATOR_ORDERS_S = _integer("HEADRACE_OPERATOR_ORDERS_S", 15)
"""How often a worker looks for orders that nobody woke it for."""
GPU_HOUR_PRICES_PICO = parsed_prices_pico(
    "HEADRACE_GPU_HOUR_PRICES", os.environ.get("HEADRACE_GPU_HOUR_PRICES", "")
)
"""What an hour of an engine's GPU costs the house, by engine id."""
GPU_HOUR_PRICE_PICO = parsed_price_pico(
    "HEADRACE_GPU_HOUR_PRICE", os.environ.get("HEADRACE_GPU_HOUR_PRICE", "")
)
"""The same of engines that are not named; None is unknown, and so is what it leads to."""
GPU_HOUR_CURRENCY = os.environ.get("HEADRACE_GPU_HOUR_CURRENCY", "USD")
OPERATOR_REPORT_S = _integer("HEADRACE_OPERATOR_REPORT_S", 30)
"""How often a worker writes down how the house is."""
BACK_OFFICE_ROWS_MAX = 10_000
"""Rows of one table that can be leafed through; others are found by their key or their tenant."""
RECONCILE_S = _integer("HEADRACE_RECONCILE_S", 86_400)
"""How often a worker checks every invariant of the books."""
CELERY_BEAT_SCHEDULE |= {
    "carry out operators' orders": {
        "task": "headrace.carry_out_orders",
        "schedule": OPERATOR_ORDERS_S,
        "options": {"expires": OPERATOR_ORDERS_S},
    },
    "report how the house is": {
        "task": "headrace.report_house",
        "schedule": OPERATOR_REPORT_S,
        "options": {"expires": OPERATOR_REPORT_S},
    },
    "reconcile": {"task": "headrace.reconcile", "schedule": RECONCILE_S},
}

# --- metrics, which show how busy the house is: never on the port that tenants reach --------------
METRICS_HOST = "127.0.0.1"
METRICS_PORT = _integer("HEADRACE_METRICS_PORT", 0)
"""Loopback port on which the web process answers /metrics, and nothing else; 0 for none."""
WORKER_METRICS_PORT = _integer("HEADRACE_WORKER_METRICS_PORT", 0)
"""Loopback port on which the worker answers /metrics; 0 for none."""

# --- logging -------------------------------------------------------------------------------------
LOGGING_CONFIG = "headrace.telemetry.logging.configure"
LOGGING: dict[str, Any] = {"level": os.environ.get("HEADRACE_LOG_LEVEL", "INFO")}
