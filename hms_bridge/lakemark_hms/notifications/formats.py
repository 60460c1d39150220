"""The forms of a message on the wire: JSON, or the same compressed, as Hive 4 writes it by default."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

Message = dict[str, Any]


class MessageFormat(NamedTuple):
    """``name``: by which Hive's readers choose how to read a message."""

    name: str
    encode: Callable[[Message], str]


def _json(message: Message) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _gzipped(message: Message) -> str:
    return base64.b64encode(gzip.compress(_json(message).encode(), mtime=0)).decode()


JSON: Final = MessageFormat("json-0.2", _json)

BY_SETTING: Final[Mapping[str, MessageFormat]] = {"json": JSON, "gzip": MessageFormat("gzip(json-2.0)", _gzipped)}
"""By the value of the setting ``hms_notification_format``."""
