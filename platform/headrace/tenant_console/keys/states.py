"""What is shown of a key in a word: whether it works, until when, for what, within which limits.

Pure. Called by the pages of keys and of projects.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from headrace.console_kit.formats import count_text
from tenants.contracts import KeyInfo, KeyScope, MinuteLimits

EXPIRY_NEAR = timedelta(days=14)
MODELS_SHOWN_MAX = 2
LIMIT_WORDS = {
    "requests_max": "req/min",
    "tokens_max": "tok/min",
    "input_tokens_max": "input/min",
    "output_tokens_max": "output/min",
    "concurrent_max": "at once",
}


@dataclass(frozen=True, slots=True)
class KeyState:
    """A word with its tone; `ends_at` is when a key that works stops by itself."""

    word: str
    tone: str
    ends_at: datetime | None = None
    works: bool = True


def state_of(key: KeyInfo, now: datetime, closed_ids: Collection[UUID] = frozenset()) -> KeyState:
    """The state at a moment; `closed_ids` are archived projects and disabled accounts."""
    expires_at = key.settings.expires_at
    if key.revoked_at is not None:
        return KeyState("revoked", "red", works=False)
    if key.revoke_at is not None and key.revoke_at <= now:
        return KeyState("rotated out", "gray", works=False)
    if expires_at is not None and expires_at <= now:
        return KeyState("expired", "gray", works=False)
    if key.project_id in closed_ids:
        return KeyState("project archived", "gray", works=False)
    if key.service_account_id in closed_ids:
        return KeyState("account disabled", "gray", works=False)
    if key.revoke_at is not None:
        return KeyState("rotating", "yellow", min(key.revoke_at, expires_at or key.revoke_at))
    if expires_at is not None:
        tone = "yellow" if expires_at - now < EXPIRY_NEAR else "green"
        return KeyState("expires", tone, expires_at)
    return KeyState("active", "green")


def scopes_text(scopes: Collection[KeyScope]) -> str:
    """`all`, or their names."""
    return "all" if len(scopes) == len(KeyScope) else ", ".join(sorted(scopes))


def models_text(models: Collection[str] | None) -> str:
    """`all`, or the first few."""
    if models is None:
        return "all"
    shown = sorted(models)[:MODELS_SHOWN_MAX]
    more = len(models) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def limits_text(limits: MinuteLimits) -> str:
    """`60 req/min, 10k tok/min`, or that there are none of its own."""
    given = [
        f"{count_text(getattr(limits, name))} {word}"
        for name, word in LIMIT_WORDS.items()
        if getattr(limits, name) is not None
    ]
    return ", ".join(given) or "none of its own"
