"""Requests are known by their bytes without the sequence number, and only whole ones are."""

from __future__ import annotations

import pytest

from lakemark_hms.wire import codec
from lakemark_hms.wire.inbox import Inbox, Message
from lakemark_hms.wire.ready import REQUEST_BYTES_MAX, request_key
from lakemark_thrift.services import METHODS


def request(name: str = "t", seqid: int = 1, kind: int = codec.CALL) -> bytes:
    return codec.encode_call("get_table", seqid, METHODS["get_table"].args(dbname="d", tbl_name=name), kind)


def messages(data: bytes) -> list[Message]:
    inbox = Inbox(1 << 20)
    inbox.feed(data)
    taken = []
    while (message := inbox.take(0.0)) is not None:
        taken.append(message)
    return taken


def test_requests_that_differ_in_their_number_only_have_one_key() -> None:
    data = b"".join(request(seqid=number) for number in (0, 7, -1, 2**31 - 1))
    keys = {request_key(message) for message in messages(data)}
    assert len(keys) == 1
    [key] = keys
    head = 8 + len("get_table")
    assert key == request()[:head] + request()[head + 4 :]


def test_others_have_other_keys() -> None:
    requests = [request("t"), request("u"), codec.encode_call("get_all_databases", 1, METHODS["shutdown"].args())]
    assert len({request_key(message) for message in messages(b"".join(requests))}) == 3


@pytest.mark.parametrize(
    "data",
    [
        request(kind=codec.ONEWAY),
        request("x" * REQUEST_BYTES_MAX),
        b"\0\0\0\x09get_table\x01\0\0\0\x01" + request()[21:],  # without a version
    ],
    ids=["one way", "too large", "the old form"],
)
def test_some_have_no_key(data: bytes) -> None:
    assert [request_key(message) for message in messages(data)] == [None]
    assert [request_key(message) for message in messages(request() + data)][1] is None
