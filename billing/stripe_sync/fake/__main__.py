"""`python -m billing.stripe_sync.fake --port N`: the fake as a process, on loopback only.

Secrets come best from the environment, under the names that its clients read them from.
"""

import argparse
import os
import sys
from pathlib import Path

import uvicorn

from billing.stripe_sync.fake.app import Application
from billing.stripe_sync.fake.store import Store
from billing.stripe_sync.fake.webhooks import new_endpoint

HOST = "127.0.0.1"
GRACE_S = 2
COMMAND_LINE = "of the command line"


def main() -> None:
    """Serves until told to stop."""
    parser = argparse.ArgumentParser(prog="billing.stripe_sync.fake", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--api-key",
        default=os.environ.get("STRIPE_API_KEY") or "sk_test_fake",
        help="what clients must send; STRIPE_API_KEY or sk_test_fake unless given",
    )
    parser.add_argument("--webhook-url", help="where events go")
    parser.add_argument(
        "--webhook-secret",
        default=os.environ.get("STRIPE_WEBHOOK_SECRETS") or "whsec_fake",
        help="what signs them, several with commas; STRIPE_WEBHOOK_SECRETS unless given",
    )
    parser.add_argument("--state", type=Path, help="a JSON file that outlives the process")
    parser.add_argument("--public-url", help="where browsers reach it; by default this port")
    arguments = parser.parse_args()
    public_url = arguments.public_url or f"http://{HOST}:{arguments.port}"
    store = Store(arguments.state, public_url)
    if arguments.webhook_url:
        point_to(store, arguments.webhook_url, arguments.webhook_secret.split(","))
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


def point_to(store: Store, url: str, secrets: list[str]) -> None:
    """Makes the command line's endpoint the only one of its kind: an earlier one may be gone."""
    for known in list(store.all("webhook_endpoint")):
        if known["description"] == COMMAND_LINE:
            del store.kinds["webhook_endpoint"][known["id"]]
    endpoint = new_endpoint(store, url, secrets[0], ["*"])
    endpoint["description"] = COMMAND_LINE
    store.get("endpoint_modes", endpoint["id"])["secrets"] = secrets


if __name__ == "__main__":
    main()
