"""The serialized expressions by which clients of Hive select partitions.

Hive's own are objects of Java (Kryo), which nobody else can read. One byte, -1, is the expression of a client that has
none. Where a Metastore is set up without Hive's classes (``MsckPartitionExpressionProxy``), clients send the text of a
partition filter instead.
"""

from __future__ import annotations

from lakemark_core.errors import InvalidPredicate
from lakemark_hms.filters import parse_filter


def selects_all(expression: bytes | str | None) -> bool:
    """Whether the client sent no expression."""
    return _bytes_of(expression) in (b"", b"\xff")


def filter_text(expression: bytes | str | None) -> str | None:
    """The partition filter that the expression is; "" selects all. None: it is something else, such as Java's bytes."""
    if selects_all(expression):
        return ""
    try:
        text = _bytes_of(expression).decode()
        parse_filter(text)
    except (UnicodeDecodeError, InvalidPredicate):
        return None
    return text if text.strip() else ""


def _bytes_of(expression: bytes | str | None) -> bytes:
    return expression.encode() if isinstance(expression, str) else expression or b""
