"""Pages of lists and their tokens."""

from __future__ import annotations

import base64

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.rpc.pages import cut, decode_token, encode_token


@pytest.mark.parametrize(("count", "page", "token"), [(0, [], ""), (2, [0, 1], ""), (3, [0, 1], "1")])
def test_a_token_is_given_if_there_are_more(count: int, page: list[int], token: str) -> None:
    assert cut(list(range(count)), 2, str) == (page, token)


def test_tokens_come_back_as_they_were_given() -> None:
    assert decode_token(encode_token(7, "a-b", 0), int, str, int) == [7, "a-b", 0]


@pytest.mark.parametrize(
    "token",
    [
        "",
        "abc",
        "é",
        "\ud800",
        base64.urlsafe_b64encode(b"\xff.x").decode(),
        encode_token(1),
        encode_token(1, 2, "x"),
        encode_token("a", "b"),
        encode_token(-1, "b"),
    ],
)
def test_other_texts_are_refused(token: str) -> None:
    with pytest.raises(InvalidArgument, match="the page token is not one that this service gave"):
        decode_token(token, int, str)
