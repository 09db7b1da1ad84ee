"""Names of imported things: readable, allowed here, and the same at each run. Pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.importing.blueprint import ProjectPlan

NAME_CHARS_MAX = 120
SLUG_CHARS_MAX = 40
"""Of the readable part; what tells two apart comes behind it."""
_PRINTABLE = re.compile(r"[^\w .,@:+()/-]+")
_SLUG = re.compile(r"[^a-z0-9]+")


def name_of(given: str, otherwise: str) -> str:
    """A name as people may read it here, never empty."""
    name = " ".join(_PRINTABLE.sub(" ", given).split()) or " ".join(
        _PRINTABLE.sub(" ", otherwise).split()
    )
    return name[:NAME_CHARS_MAX].strip() or "unnamed"


def slug_of(source_id: str, name: str) -> str:
    """The same for the same source at each run, and never another's."""
    readable = _SLUG.sub("-", name.lower()).strip("-")[:SLUG_CHARS_MAX].strip("-") or "litellm"
    return f"{readable}-{hashlib.sha256(source_id.encode()).hexdigest()[:10]}"


def told_apart(projects: Sequence[ProjectPlan]) -> tuple[ProjectPlan, ...]:
    """Two teams of one name become two projects of two names."""
    seen: dict[str, int] = {}

    def named() -> Iterator[ProjectPlan]:
        for project in projects:
            seen[project.name] = number = seen.get(project.name, 0) + 1
            suffix = f" {number}" if number > 1 else ""
            shortened = project.name[: NAME_CHARS_MAX - len(suffix)]
            yield replace(project, name=shortened + suffix)

    return tuple(named())
