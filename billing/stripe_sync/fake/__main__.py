"""`python -m billing.stripe_sync.fake --port N`: the fake as a process, on loopback only."""

import argparse
import sys
from pathlib import Path

import uvicorn

from billing.stripe_sync.fake.app import Application
from billing.stripe_sync.fake.store import Store
from billing.stripe_sync.fake.webhooks import new_endpoint

HOST = "127.0.0.1"
GRACE_S = 2


def main() -> None:
    """Serves until told to stop."""
    parser = argparse.ArgumentParser(prog="billing.stripe_sync.fake", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-key", default="sk_test_fake", help="what clients must send")
    parser.add_argument("--webhook-url", help="where events go")
    parser.add_argument("--webhook-secret", default="whsec_fake", help="what signs them")
    parser.add_argument("--state", type=Path, help="a JSON file that outlives the process")
    parser.add_argument("--public-url", help="where browsers reach it; by default this port")
    arguments = parser.parse_args()
    public_url = arguments.public_url or f"http://{HOST}:{arguments.port}"
    store = Store(arguments.state, public_url)
    if arguments.webhook_url:
        known = [
            each for each in store.all("webhook_endpoint") if each["url"] == arguments.webhook_url
        ]
        endpoint = (
            known[0]
            if known
            else new_endpoint(store, arguments.webhook_url, arguments.webhook_secret, ["*"])
        )
        store.get("endpoint_modes", endpoint["id"])["secrets"] = [arguments.webhook_secret]
    sys.stderr.write(f"event=stripe_fake_starting port={arguments.port}\n")
    uvicorn.run(
        Application(store, arguments.api_key),
        host=HOST,
        port=arguments.port,
        access_log=False,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
    )


if __name__ == "__main__":
    main()
