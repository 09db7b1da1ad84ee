"""Holds what the fake answers against stripe-python's own models, field by field.

Every annotation of the model that is not optional must be there, each value must be of its type,
literals included, and what the model does not know must not be there.
"""

import ast
import importlib
import inspect
import sys
import types
import typing
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import stripe
from stripe import StripeObject
from stripe._stripe_object import UntypedStripeObject

_HINTS: dict[type, dict[str, Any]] = {}


def assert_typed(shown: StripeObject) -> None:
    """Raises AssertionError that lists everything wrong with an object."""
    wrong = faults(shown, type(shown), type(shown).__name__)
    assert type(shown) is not StripeObject, "stripe-python knows no such object"
    assert not wrong, "\n".join(wrong)


def faults(value: Any, wanted: Any, path: str) -> list[str]:
    """What is wrong with a value of that type."""
    origin = get_origin(wanted)
    if wanted is Any or isinstance(wanted, typing.TypeVar):
        return []
    if origin in (Union, types.UnionType):
        branches = [faults(value, branch, path) for branch in get_args(wanted)]
        return min(branches, key=len)
    if origin is Literal:
        allowed = get_args(wanted)
        return [] if value in allowed else [f"{path}: {value!r} is none of {allowed[:8]}"]
    if origin is list:
        (item,) = get_args(wanted)
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [
            fault for at, each in enumerate(value) for fault in faults(each, item, f"{path}[{at}]")
        ]
    if origin is UntypedStripeObject or wanted is UntypedStripeObject:
        return [] if isinstance(value, StripeObject) else [f"{path}: {value!r} is no hash"]
    return _faults_of_value(value, origin or wanted, get_args(wanted), path)


def _faults_of_value(value: Any, target: Any, arguments: tuple[Any, ...], path: str) -> list[str]:
    if target is stripe.ListObject:
        if not isinstance(value, stripe.ListObject):
            return [f"{path}: {value!r} is no list object"]
        item = arguments[0] if arguments else Any
        return [
            fault
            for at, each in enumerate(value.data)
            for fault in faults(each, item, f"{path}[{at}]")
        ]
    if isinstance(target, type) and issubclass(target, StripeObject):
        if not isinstance(value, StripeObject):
            return [f"{path}: {value!r} is no {target.__name__}"]
        return _faults_of_fields(value, target, path)
    if target is float:
        return [] if type(value) in (int, float) else [f"{path}: {value!r} is no number"]
    return [] if type(value) is target else [f"{path}: {value!r} is no {target}"]


def _faults_of_fields(shown: StripeObject, model: type, path: str) -> list[str]:
    hints = _hints(model)
    data = shown._data
    found = []
    for name, wanted in hints.items():
        if name in data:
            found += faults(data[name], wanted, f"{path}.{name}")
        elif type(None) not in get_args(wanted):
            found.append(f"{path}.{name} is missing")
    unknown = set(data) - set(hints)
    return found + [f"{path}.{name} is no field of {model.__name__}" for name in sorted(unknown)]


def _hints(model: type) -> dict[str, Any]:
    if model not in _HINTS:
        namespace = dict(vars(stripe))
        for base in reversed(model.__mro__):
            if base.__module__.startswith("stripe"):
                namespace |= _namespace(sys.modules[base.__module__])
        local = dict(vars(model))
        for outer in _outers(model):
            local = {**vars(outer), **local}
        hints = get_type_hints(model, namespace, local)
        _HINTS[model] = {
            name: hint
            for name, hint in hints.items()
            if name in vars(model).get("__annotations__", {}) and get_origin(hint) is not ClassVar
        }
    return _HINTS[model]


def _outers(model: type) -> list[type]:
    """The classes that a nested model is defined in."""
    outer: Any = sys.modules[model.__module__]
    found = []
    for name in model.__qualname__.split(".")[:-1]:
        outer = getattr(outer, name)
        found.append(outer)
    return found


def _namespace(module: types.ModuleType) -> dict[str, Any]:
    """The module's names, and those that it imports for type checkers only."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                if isinstance(each, ast.ImportFrom) and each.module:
                    source = importlib.import_module(each.module)
                    for alias in each.names:
                        names[alias.asname or alias.name] = getattr(source, alias.name)
    return names
