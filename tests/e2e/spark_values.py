"""Spark's Python values as JSON and back, without loss.

Shared by the test process and the Spark child, which may be another Python environment: standard library only.
What JSON has not is an object with one key that starts with `$`.
"""

import base64
import datetime as dt
import decimal
import math
from typing import Any


def to_json(value: Any) -> Any:
    """A JSON-encodable form of a value that Spark returns; rows and tuples become lists.

    Raises `TypeError` for a type that Spark does not return.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, decimal.Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, dt.datetime):
        return {"$timestamp": value.isoformat()}
    if isinstance(value, dt.date):
        return {"$date": value.isoformat()}
    if isinstance(value, dt.timedelta):
        return {"$seconds": value.total_seconds()}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {"$map": [[to_json(key), to_json(item)] for key, item in value.items()]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent to the test: {value!r}")


def from_json(value: Any) -> Any:
    """The value that `to_json` was given; lists stay lists, so a row or struct comes back as a list."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, body),) = value.items()
    match tag:
        case "$float":
            return float(body)
        case "$decimal":
            return decimal.Decimal(body)
        case "$timestamp":
            return dt.datetime.fromisoformat(body)
        case "$date":
            return dt.date.fromisoformat(body)
        case "$seconds":
            return dt.timedelta(seconds=body)
        case "$bytes":
            return base64.b64decode(body)
        case "$map":
            return {from_json(key): from_json(item) for key, item in body}
    raise ValueError(f"unknown tag {tag}")
