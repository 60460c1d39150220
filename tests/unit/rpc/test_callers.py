"""Who sent a request is known also when the request is over."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark_core.user import USER_KEY
from lakemark_server.context import caller
from lakemark_server.rpc.requests import caller_of


class Call:
    """Of gRPC's context what is asked for. When the call is over, gRPC's own may end the process instead."""

    def __init__(self, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self._metadata = metadata
        self.is_over = False

    def invocation_metadata(self) -> Any:
        assert not self.is_over
        return self._metadata

    def peer(self) -> str:
        assert not self.is_over
        return "ipv4:127.0.0.1:1"


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ((), "ipv4:127.0.0.1:1"),
        (((USER_KEY, "ada@host"),), "ada@host (ipv4:127.0.0.1:1)"),
        (((USER_KEY, b"ada@\xff"),), "ada@\ufffd (ipv4:127.0.0.1:1)"),
    ],
)
def test_the_text_is_made_when_the_call_is_over(metadata: tuple[tuple[str, str | bytes], ...], told: str) -> None:
    call = Call(metadata)
    name = caller_of(call)  # type: ignore[arg-type]
    call.is_over = True
    assert caller.text_of(name) == told
