"""Signatures of webhooks, as the Standard Webhooks specification describes them: HMAC-SHA256 of id, time and body.

A secret is a text: ``whsec_`` and 24 to 64 random bytes in Base64. While a secret is replaced there are two, and a
message has a signature by each.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from lakemark_core.errors import InvalidArgument

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what every secret begins with
SECRET_BYTES_LEAST: Final = 24
SECRET_BYTES_MOST: Final = 64


def key_of(secret: str) -> bytes:
    """The key in a secret. Raises InvalidArgument, whose message does not hold the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not SECRET_BYTES_LEAST <= len(key) <= SECRET_BYTES_MOST:
        raise InvalidArgument(
            f"the secret of a webhook is {SECRET_PREFIX} and {SECRET_BYTES_LEAST} to {SECRET_BYTES_MOST} random bytes "
            f"in Base64; 'lakemark sinks secret' makes one"
        )
    return key


def signed_headers(keys: Sequence[bytes], message_id: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers that prove who has sent ``body``, and when: seconds since 1970."""
    signed = f"{message_id}.{time_s}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
