"""What an answer must match: OpenAI's `response_format`, and vLLM's names for the same. Pure.

Only shape and size are judged here, so that a malformed body costs nothing; whether a schema or an
expression can be obeyed, the engine says. Raises ApiError 400 that names the field.
"""

import re
from typing import Any

import msgspec
from django.conf import settings

from headrace import errors
from headrace.gateway.openai.fields import Body
from inference.contracts import GRAMMAR_CHARS_MAX, Grammar, GrammarKind

_SCHEMA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELDS = ("response_format", "structured_outputs", "guided_json", "guided_regex")
_STRUCTURED = ("json", "regex", "json_object")
_UNSUPPORTED = ("choice", "grammar", "structural_tag")
"""What vLLM's `structured_outputs` and `guided_*` know beyond ours."""


def grammar(body: Body) -> tuple[Grammar | None, str]:
    """The grammar, if any, and the field that asked for it."""
    for kind in _UNSUPPORTED:
        if body.get(f"guided_{kind}") is not None:
            raise errors.unsupported(f"guided_{kind}")
    found = [
        (rule, name)
        for name in _FIELDS
        if (value := body.get(name)) is not None and (rule := _rule(name, value)) is not None
    ]
    if len(found) > 1:
        names = " and ".join(f"'{name}'" for _, name in found)
        raise errors.invalid(f"{names} contradict each other; send one.", found[1][1])
    return found[0] if found else (None, "response_format")


def _rule(name: str, value: Any) -> Grammar | None:
    match name:
        case "response_format":
            return _response_format(value)
        case "structured_outputs":
            return _structured_outputs(value)
        case "guided_json":
            return _json_schema(value, name)
        case _:
            return _regex(value, name)


def _response_format(value: Any) -> Grammar | None:
    kind = value.get("type") if isinstance(value, dict) else None
    match kind:
        case "text":
            return None
        case "json_object":
            return Grammar(GrammarKind.JSON_OBJECT)
        case "json_schema":
            return _named_schema(value.get("json_schema"))
        case _:
            raise _bad(
                "response_format", "must be an object of type text, json_object or json_schema"
            )


def _named_schema(value: Any) -> Grammar:
    param = "response_format.json_schema"
    if not isinstance(value, dict):
        raise _bad(param, "must be an object")
    name = value.get("name")
    if not isinstance(name, str) or not _SCHEMA_NAME.fullmatch(name):
        raise _bad(f"{param}.name", "must have 1 to 64 letters, digits, underscores or dashes")
    if not isinstance(value.get("strict"), bool | None):
        raise _bad(f"{param}.strict", "must be true or false")
    if not isinstance(value.get("schema"), dict):
        raise _bad(f"{param}.schema", "must be a JSON schema, as an object")
    return _json_schema(value["schema"], f"{param}.schema")


def _structured_outputs(value: Any) -> Grammar:
    param = "structured_outputs"
    if not isinstance(value, dict):
        raise _bad(param, "must be an object")
    asked = {name: entry for name, entry in value.items() if entry is not None}
    for name in asked:
        if name in _UNSUPPORTED:
            raise errors.unsupported(f"{param}.{name}")
    if len(asked) != 1 or next(iter(asked)) not in _STRUCTURED:
        raise _bad(param, f"must hold exactly one of {', '.join(_STRUCTURED)}")
    ((name, entry),) = asked.items()
    if name == "json":
        return _json_schema(entry, f"{param}.json")
    if name == "regex":
        return _regex(entry, f"{param}.regex")
    if entry is not True:
        raise _bad(f"{param}.json_object", "must be true, or absent")
    return Grammar(GrammarKind.JSON_OBJECT)


def _json_schema(value: Any, param: str) -> Grammar:
    """A schema as an object, or as JSON text of one."""
    if isinstance(value, str):
        _check_size(value, param)
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise _bad(param, "is not JSON") from None
    if not isinstance(value, dict):
        raise _bad(param, "must be a JSON schema, as an object")
    _check_depth(value, param)
    source = msgspec.json.encode(value).decode()
    _check_size(source, param)
    return Grammar(GrammarKind.JSON_SCHEMA, source)


def _regex(value: Any, param: str) -> Grammar:
    if not isinstance(value, str) or not value:
        raise _bad(param, "must be a regular expression, as a string that is not empty")
    _check_size(value, param)
    return Grammar(GrammarKind.REGEX, value)


def _check_size(source: str, param: str) -> None:
    if len(source) > GRAMMAR_CHARS_MAX:
        raise _bad(param, f"has more than {GRAMMAR_CHARS_MAX} characters")


def _check_depth(schema: Any, param: str) -> None:
    layer = [schema]
    for _ in range(settings.GRAMMAR_DEPTH_MAX):
        layer = [
            child
            for node in layer
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not layer:
            return
    raise _bad(param, f"is nested more than {settings.GRAMMAR_DEPTH_MAX} deep")


def _bad(param: str, what: str) -> errors.ApiError:
    return errors.invalid(f"'{param}' {what}.", param)
