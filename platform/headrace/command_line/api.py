"""Headrace's API as the command sees it: JSON and files over HTTP, tried again where that helps.

A request is repeated after network errors, 408, 429 and 5xx, with growing pauses or those that
`Retry-After` names, until its patience is over. It must never repeat what would act twice: jobs are
made under an Idempotency-Key, and the rest may be said twice. Called by the rest of the command.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx

from headrace.command_line.ending import CommandStopped

CONNECT_S = 10
ANSWER_S = 120
"""How long one try may be silent: an upload of 100 MB is stored before it is answered."""
PATIENCE_S = 90
"""How long a request is repeated."""
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 20
JITTER = 0.25
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
ERROR_CHARS_MAX = 500

Body = Callable[[], Mapping[str, Any]]  # options of httpx
"""Makes the body anew for each try: a file is read from its start again."""


class Refused(CommandStopped):
    """The API answered, and the answer was no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(CommandStopped):
    """No usable answer within the patience; what was asked may have happened."""


class Api:
    """One project's view of one Headrace."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base_url` is what any OpenAI client takes, with or without its `/v1`."""
        self.root = base_url.rstrip("/").removesuffix("/v1")
        address = urlsplit(self.root)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise CommandStopped(f"{base_url!r} is no http(s) address of an API")
        self._pause = pause
        self._clock = clock
        try:
            self._client = httpx.Client(
                headers={"Authorization": f"Bearer {key}"},
                timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
                # A proxy is for the way out; this machine is not out.
                trust_env=address.hostname not in LOOPBACK,
            )
        except (UnicodeEncodeError, ValueError) as error:
            raise CommandStopped("the API key has characters that no key has") from error

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def get(self, path: str, *, patience_s: float = PATIENCE_S, **params: Any) -> Any:  # JSON
        """The JSON at `path`."""
        return self._json("GET", path, lambda: {"params": params}, patience_s=patience_s)

    def post(
        self, path: str, value: Mapping[str, Any] | None = None, *, idempotency_key: str = ""
    ) -> Any:  # JSON
        """What the API answers to this JSON."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._json("POST", path, lambda: {"json": value or {}, "headers": headers})

    def patch(self, path: str, value: Mapping[str, Any]) -> Any:  # JSON
        """What the API answers to this change."""
        return self._json("PATCH", path, lambda: {"json": value})

    def upload(
        self, path: str, fields: Mapping[str, str], filename: str, stream: BinaryIO
    ) -> Any:  # JSON
        """What the API answers to this file. A try without an answer may have stored it, too."""

        def body() -> Mapping[str, Any]:
            stream.seek(0)
            return {"data": fields, "files": {"file": (filename, stream)}}

        return self._json("POST", path, body)

    @contextmanager
    def download(self, path: str, **params: Any) -> Iterator[httpx.Response]:
        """A response whose body is still to come. A body that breaks off raises Unreachable."""
        response = self._answer("GET", path, lambda: {"params": params}, PATIENCE_S)
        try:
            yield response
        except httpx.TransportError as error:
            raise Unreachable(f"the answer of {self.root} broke off") from error
        finally:
            response.close()

    def _json(self, method: str, path: str, body: Body, patience_s: float = PATIENCE_S) -> Any:
        response = self._answer(method, path, body, patience_s)
        try:
            return _read_json(response)
        except httpx.TransportError as error:
            raise Unreachable(f"the answer of {self.root} broke off") from error
        finally:
            response.close()

    def _answer(self, method: str, path: str, body: Body, patience_s: float) -> httpx.Response:
        """The first answer that is no passing trouble, its body not read yet."""
        until = self._clock() + patience_s
        delay_s = PAUSE_FIRST_S
        while True:
            try:
                request = self._client.build_request(method, self.root + path, **body())
                response = self._client.send(request, stream=True)
            except httpx.TransportError as error:
                trouble, wait_s = f"{self.root} cannot be reached ({_reason(error)})", delay_s
            else:
                if response.is_success:
                    return response
                refusal = _refusal(response)
                if not _is_passing(response):
                    raise refusal
                trouble, wait_s = str(refusal), _retry_after_s(response, delay_s)
            wait_s *= 1 + JITTER * random.random()  # noqa: S311 - spreads retries, guards nothing
            if self._clock() + wait_s > until:
                raise Unreachable(trouble)
            self._pause(wait_s)
            delay_s = min(2 * delay_s, PAUSE_MAX_S)


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _is_passing(response: httpx.Response) -> bool:
    told = response.headers.get("x-should-retry")
    return told == "true" or (told != "false" and response.status_code in RETRIED)


def _retry_after_s(response: httpx.Response, delay_s: float) -> float:
    try:
        return max(float(response.headers["retry-after"]), 0)
    except (KeyError, ValueError):
        return delay_s


def _refusal(response: httpx.Response) -> Refused:
    """What the API says is wrong, in a line; closes the response."""
    try:
        response.read()
        message = str(response.json()["error"]["message"])
    except (httpx.TransportError, ValueError, KeyError, TypeError):
        message = f"no Headrace seems to be there (HTTP {response.status_code})"
    finally:
        response.close()
    line = " ".join(message.split())[:ERROR_CHARS_MAX]
    return Refused(response.status_code, line)


def _read_json(response: httpx.Response) -> Any:
    response.read()
    try:
        return response.json()
    except ValueError as error:
        raise CommandStopped(f"{response.url} answered with something else than JSON") from error
