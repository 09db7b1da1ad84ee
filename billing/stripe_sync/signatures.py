"""Whether a message is Stripe's: its signature over the raw body, and its time. Pure.

The body must be the bytes that arrived: parsing and writing it again would change them. Called by
`webhooks` before anything of the body is believed.
"""

import hashlib
import hmac
from collections.abc import Sequence

from billing.contracts import StripeSignatureInvalid

TOLERANCE_S = 300
"""Between the signature's time and ours, to either side."""
HEADER_LENGTH_MAX = 2048
SIGNATURES_MAX = 10
"""Of one header: two while a secret is rotated, and room."""


def verify(body: bytes, header: str | None, secrets: Sequence[str], now_s: int) -> None:
    """Raises StripeSignatureInvalid unless one of the secrets made one of the `v1` signatures.

    Several secrets are valid while one is rotated, here or there.
    """
    if not header or len(header) > HEADER_LENGTH_MAX:
        raise StripeSignatureInvalid("the signature header is missing or too long")
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    given = [value for name, _, value in pairs if name == "v1"][:SIGNATURES_MAX]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdecimal() or not given:
        raise StripeSignatureInvalid("the signature header makes no sense")
    signed = times[0].encode() + b"." + body
    genuine = False
    for secret in secrets:
        expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
        for signature in given:
            genuine |= hmac.compare_digest(expected, signature.encode())
    if not genuine:
        raise StripeSignatureInvalid("no signature matches")
    if abs(now_s - int(times[0])) > TOLERANCE_S:
        raise StripeSignatureInvalid("the signature is of another time")
