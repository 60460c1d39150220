"""Pages of lists, and the tokens that say where the next one begins. Clients give a token back as they got it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lakemark_core.errors import InvalidArgument

T = TypeVar("T")


def cut(items: Sequence[T], limit: int, token_of: Callable[[T], str]) -> tuple[Sequence[T], str]:
    """The first ``limit`` items, and the token of the last of them if there are more, else ""."""
    page = items[:limit]
    return page, token_of(page[-1]) if len(items) > limit else ""


def encode_token(*fields: int | str) -> str:
    return base64.urlsafe_b64encode(".".join(map(str, fields)).encode()).decode()


def decode_token(token: str, *kinds: type[int] | type[str]) -> list[Any]:
    """The fields of a token, each of its kind. No int is negative. Raises InvalidArgument for other texts."""
    try:
        fields = base64.urlsafe_b64decode(token.encode()).decode().split(".")
        values = [kind(field) for kind, field in zip(kinds, fields, strict=True)]
    except ValueError as error:
        raise unknown_token() from error
    if any(isinstance(value, int) and value < 0 for value in values):
        raise unknown_token()
    return values


def unknown_token() -> InvalidArgument:
    return InvalidArgument("the page token is not one that this service gave")
