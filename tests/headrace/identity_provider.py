"""An identity provider on loopback that speaks just enough OpenID Connect."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass
class IdentityProvider:
    """Says that whoever comes is `person`; keeps what it was asked for tokens."""

    port: int
    person: dict[str, Any] = field(default_factory=dict)
    token_requests: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What the configuration calls `server_url`."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: str) -> dict[str, Any]:
        """By path."""
        match path:
            case "/.well-known/openid-configuration":
                return {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "userinfo_endpoint": f"{self.url}/userinfo",
                    "jwks_uri": f"{self.url}/keys",
                    "token_endpoint_auth_methods_supported": ["client_secret_post"],
                }
            case "/token":
                asked = {name: values[0] for name, values in parse_qs(body).items()}
                self.token_requests.append(asked)
                return {"access_token": "access", "token_type": "Bearer", "expires_in": 60}
        return self.person


@contextmanager
def identifying() -> Iterator[IdentityProvider]:
    """A provider while the block runs."""
    provider = IdentityProvider(0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

        def _answer(self, body: str) -> None:
            answer = json.dumps(provider.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    provider.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
