"""What the operator's commands read from their command lines, checked before anything changes.

Called by the commands beside it, which act as the housekeeper. Money is parsed from decimals to
integers and never passes a float.
"""

import getpass
import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime

from django.core.management.base import CommandError

from billing.contracts import PICO
from billing.facade import parse_decimal
from tenants.contracts import Organization
from tenants.facade import organization_by_slug

HOUSEKEEPER = "housekeeper"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SLUG_CHARS_MAX = 63
LABEL_CHARS_MAX = 120
GRANT_MAX_PICO = 10**9 * PICO
"""More than that in one grant is a slip of the keyboard."""
LIMIT_MAX = 2**31 - 1
DATE_CHARS = len("2027-01-01")


def slug(text: str) -> str:
    """A new tenant's short name."""
    if len(text) > SLUG_CHARS_MAX or not SLUG.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is no slug: up to {SLUG_CHARS_MAX} lower-case letters, digits and hyphens"
        )
    return text


def label(text: str) -> str:
    """A name for people to read."""
    if not 1 <= len(text) <= LABEL_CHARS_MAX or not text.isprintable():
        raise ArgumentTypeError(f"a name has 1 to {LABEL_CHARS_MAX} printable characters")
    return text


def credit_pico(text: str) -> int:
    """A positive amount such as 5 or 0.02, in pico-units."""
    try:
        amount_pico = parse_decimal(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if not 0 < amount_pico <= GRANT_MAX_PICO:
        raise ArgumentTypeError(f"{text} is not between 0 and {GRANT_MAX_PICO // PICO}")
    return amount_pico


def limit(text: str) -> int:
    """A whole number of tokens or requests, at least 1."""
    if not text.isdecimal() or not 0 < int(text) <= LIMIT_MAX:
        raise ArgumentTypeError(f"{text!r} is no whole number between 1 and {LIMIT_MAX}")
    return int(text)


def moment(text: str) -> datetime:
    """A date (its first moment in UTC), or a date and time with its offset."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no date, nor a date and time") from error
    if read.tzinfo is None:
        if len(text) > DATE_CHARS:
            raise ArgumentTypeError(f"{text!r} lacks an offset, as in 2027-01-01T00:00:00Z")
        read = read.replace(tzinfo=UTC)
    return read


def operators_name() -> str:
    """Who runs this command, as the operating system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def organization_named(name: str) -> Organization:
    """The tenant of this slug; CommandError when there is none."""
    organization = organization_by_slug(name, using=HOUSEKEEPER)
    if organization is None:
        raise CommandError(f"no tenant {name!r}")
    return organization
