"""The back office's process: `python -m headrace.back_office --port N`, on loopback only."""

import argparse
import os

import uvicorn

HOST = "127.0.0.1"
CLOSE_GRACE_S = 5


def main() -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(prog="headrace.back_office", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # Whatever the environment says: the web's settings would serve the web here.
    os.environ["DJANGO_SETTINGS_MODULE"] = "headrace.back_office.settings"
    from headrace.back_office.asgi import application
    from headrace.lifecycle.http_limits import LimitedProtocol

    uvicorn.run(
        application,
        host=HOST,
        port=port,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSE_GRACE_S,
    )


if __name__ == "__main__":
    main()
