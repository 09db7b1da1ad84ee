"""Signing webhooks as Standard Webhooks has it, so that receivers verify with stock libraries.

Pure. A secret is shown to its owner once; afterwards it exists sealed, and here while a delivery
is signed.
"""

import base64
import hmac
import secrets
from collections.abc import Mapping, Sequence

SECRET_PREFIX = "whsec_"  # noqa: S105 - public, and in the standard
SECRET_BYTES = 32


def new_secret() -> str:
    """`whsec_` and 32 random bytes in base64."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(
    message_id: str, sent_at_s: int, body: bytes, signing_secrets: Sequence[str]
) -> Mapping[str, str]:
    """The three headers; one signature per secret, so that both hold while a secret changes."""
    signed = b"%s.%d.%s" % (message_id.encode(), sent_at_s, body)
    signatures = [_signature(secret, signed) for secret in signing_secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at_s),
        "webhook-signature": " ".join(signatures),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
