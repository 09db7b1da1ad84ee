"""How a handler is found: method and path, with ids taken from the path. Called by `app`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.store import Json, Store, page

Handler = Callable[..., Json]
"""Takes the store, the parameters and the ids of the path; runs without ever waiting."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path; `{}` stands for an id."""

    method: str
    path: str
    handler: Handler

    def ids(self, method: str, path: str) -> list[str] | None:
        """The ids in the path when this route serves it."""
        pattern = re.escape(self.path).replace(r"\{\}", "([^/]+)")
        match = re.fullmatch(pattern, path) if method == self.method else None
        return None if match is None else list(match.groups())


def retrieve(kind: str) -> Handler:
    """A handler that shows one object."""

    def show(store: Store, parameters: Parameters, object_id: str) -> Json:
        return store.get(kind, object_id)

    return show


def listing(kind: str, url: str, *filters: str) -> Handler:
    """A handler that lists a kind, newest first, by equality of the fields named."""

    def show(store: Store, parameters: Parameters) -> Json:
        wanted = {name: parameters.text(name) for name in filters}
        since, until = created_between(parameters)
        chosen = (
            each
            for each in store.all(kind)
            if all(
                value is None or _shown(each.get(name)) == value for name, value in wanted.items()
            )
            and since <= int(each.get("created") or each["date"]) <= until
        )
        return page(
            chosen,
            url,
            parameters.integer("limit"),
            parameters.text("starting_after"),
            parameters.text("ending_before"),
        )

    return show


def created_between(parameters: Parameters) -> tuple[int, int]:
    """The bounds of the `created` filter, both inclusive."""
    since, until = 0, 2**62
    if parameters.given("created"):
        bounds = parameters.within("created")
        at_least, above = bounds.integer("gte"), bounds.integer("gt")
        at_most, below = bounds.integer("lte"), bounds.integer("lt")
        bounds.finish()
        since = max(at_least or 0, 0 if above is None else above + 1)
        until = min(until if at_most is None else at_most, until if below is None else below - 1)
    return since, until


def _shown(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
