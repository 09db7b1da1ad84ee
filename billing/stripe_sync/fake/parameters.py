"""Parameters of one request: Stripe's bracketed form encoding, read strictly.

What no handler asked for is refused, as Stripe refuses it, so a misspelt parameter cannot pass a
test here and fail there. Called by `app`, which hands the result to the handlers.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from billing.stripe_sync.fake.faults import invalid

FIELDS_MAX = 2_000
DEPTH_MAX = 8

Tree = dict[str, Any]  # JSON as the client sent it


def parse_form(text: str) -> Tree:
    """`a[b][0][c]=v` as nested mappings and lists. Raises Fault for what cannot be parsed."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise invalid("Invalid request: too many parameters.") from error
    tree: Tree = {}
    for key, value in pairs:
        _place(tree, _path(key), value)
    return {key: _with_lists(value) for key, value in tree.items()}


def _path(key: str) -> list[str]:
    name, *brackets = key.split("[")
    path = [name]
    for each in brackets:
        if not each.endswith("]"):
            raise invalid(f"Invalid parameter name: {key}", key)
        path.append(each[:-1])
    if not name or len(path) > DEPTH_MAX:
        raise invalid(f"Invalid parameter name: {key}", key)
    return path


def _place(tree: Tree, path: list[str], value: str) -> None:
    *parents, last = path
    for step in parents:
        key = step or str(len(tree))
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise invalid(f"Invalid parameter: {'.'.join(path)} is both a value and a hash")
    tree[last or str(len(tree))] = value


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    children = {key: _with_lists(child) for key, child in value.items()}
    if children and all(key.isdecimal() for key in children):
        return [children[key] for key in sorted(children, key=int)]
    return children


class Parameters:
    """The parameters of one call; each is taken once, and `finish` refuses the rest."""

    def __init__(self, tree: Tree, prefix: str = "") -> None:
        self._tree = dict(tree)
        self._prefix = prefix

    def name(self, key: str) -> str:
        """How an error names this parameter."""
        return f"{self._prefix}[{key}]" if self._prefix else key

    def given(self, key: str) -> bool:
        """Whether the client sent it at all."""
        return key in self._tree

    def text(self, key: str) -> str | None:
        """A string; None when absent or sent empty, which is how Stripe unsets."""
        value = self._tree.pop(key, None)
        if value is not None and not isinstance(value, str | int):
            raise invalid(f"Invalid string: {self.name(key)}", self.name(key))
        return None if value in (None, "") else str(value)

    def needed(self, key: str) -> str:
        """A string that must be there."""
        value = self.text(key)
        if value is None:
            raise invalid(
                f"Missing required param: {self.name(key)}.", self.name(key), "parameter_missing"
            )
        return value

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        """One of a few words."""
        value = self.text(key) or default
        allowed = tuple(allowed)
        if value not in allowed:
            raise invalid(
                f"Invalid {self.name(key)}: must be one of {', '.join(allowed)}", self.name(key)
            )
        return value

    def integer(self, key: str) -> int | None:
        """A whole number."""
        value = self.text(key)
        if value is None:
            return None
        if not value.removeprefix("-").isdecimal():
            raise invalid(f"Invalid integer: {value}", self.name(key), "parameter_invalid_integer")
        return int(value)

    def needed_integer(self, key: str) -> int:
        """A whole number that must be there."""
        value = self.integer(key)
        if value is None:
            raise invalid(
                f"Missing required param: {self.name(key)}.", self.name(key), "parameter_missing"
            )
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """`true` or `false`."""
        value = self._tree.pop(key, None)
        if value is None or value == "":
            return default
        if value in (True, False):
            return bool(value)
        if value not in ("true", "false"):
            raise invalid(f"Invalid boolean: {value}", self.name(key))
        return bool(value == "true")

    def tree(self, key: str) -> Tree | None:
        """A hash as it came; None when absent."""
        value = self._tree.pop(key, None)
        if value in (None, ""):
            return None
        if not isinstance(value, dict):
            raise invalid(f"Invalid object: {self.name(key)}", self.name(key))
        return value

    def within(self, key: str) -> "Parameters":
        """A hash whose members are read as strictly as these."""
        return Parameters(self.tree(key) or {}, self.name(key))

    def each(self, key: str) -> list["Parameters"]:
        """A list of hashes."""
        value = self._tree.pop(key, None) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise invalid(f"Invalid array: {self.name(key)}", self.name(key))
        return [Parameters(item, f"{self.name(key)}[{at}]") for at, item in enumerate(value)]

    def words(self, key: str) -> list[str]:
        """A list of strings."""
        value = self._tree.pop(key, None) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid(f"Invalid array: {self.name(key)}", self.name(key))
        return value

    def metadata(self, before: Tree | None = None) -> Tree:
        """Metadata, merged into what there was: an empty value unsets a key."""
        merged = dict(before or {})
        for key, value in (self.tree("metadata") or {}).items():
            if not isinstance(value, str):
                raise invalid("Metadata values must be strings", f"metadata[{key}]")
            if value:
                merged[key] = value
            else:
                merged.pop(key, None)
        return merged

    def ignore(self, *keys: str) -> None:
        """Parameters that Stripe knows and that change nothing here."""
        for key in keys:
            self._tree.pop(key, None)

    def finish(self) -> None:
        """Raises Fault naming the first parameter nobody asked for."""
        for key in self._tree:
            raise invalid(
                f"Received unknown parameter: {self.name(key)}",
                self.name(key),
                "parameter_unknown",
            )
