from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_hms.wire import codec
from lakemark_hms.wire.inbox import Inbox, Message, RejectedError
from lakemark_thrift import services, ttypes
from tests.unit.hms.wire import samples

LARGE = 10**9


def request(number: int, columns: int = 1) -> bytes:
    storage = ttypes.StorageDescriptor(cols=[ttypes.FieldSchema("c" * 10, "int", "")] * columns)
    args = services.add_partition_args(ttypes.Partition(values=[str(number)], sd=storage))
    return codec.encode_call("add_partition", number, args)


def take_all(inbox: Inbox, now: float = 0.0) -> list[Message]:
    found = []
    while (message := inbox.take(now)) is not None:
        found.append(message)
    return found


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(sizes: list[int], choice: st.DataObject) -> None:
    stream = b"".join(request(number, columns) for number, columns in enumerate(sizes))
    inbox = Inbox(LARGE)
    seen = []
    now = 0.0
    while stream:
        length = choice.draw(st.integers(1, len(stream)))
        inbox.feed(stream[:length])
        stream = stream[length:]
        now += 1.0  # later than any walk that was put off
        seen += take_all(inbox, now)
    seen += take_all(inbox, now + 1.0)
    assert [message.header.seqid for message in seen] == list(range(len(sizes)))
    assert inbox.size == 0
    for message, columns in zip(seen, sizes, strict=True):
        args = codec.decode_struct(services.add_partition_args, message.data, message.header.body)
        assert args.new_part is not None
        assert args.new_part.sd is not None
        assert len(args.new_part.sd.cols or []) == columns


def test_a_message_that_trickles_in_is_not_walked_for_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0
    walk = codec.end_of_struct

    def counted(data: bytes, at: int, length_max: int) -> int:
        nonlocal walked
        walked += len(data)
        return walk(data, at, length_max)

    monkeypatch.setattr("lakemark_hms.wire.inbox.end_of_struct", counted)
    message = request(1, 3000)
    inbox = Inbox(LARGE)
    for at in range(0, len(message), 10):
        assert inbox.take(0.0) is None
        inbox.feed(message[at : at + 10])
    found = inbox.take(0.0)
    if found is None:
        assert inbox.retry_at is not None
        assert inbox.take(inbox.retry_at - 1e-6) is None
        found = inbox.take(inbox.retry_at)
    assert found is not None
    assert walked < 12 * len(message)


def test_sizes_are_limited() -> None:
    message = request(1, 100)
    for length in (len(message), len(message) - 1):
        inbox = Inbox(1000)
        inbox.feed(message[:length])
        with pytest.raises(RejectedError, match="larger than 1000 bytes") as rejected:
            inbox.take(0.0)
        assert rejected.value.header is not None


def test_a_length_of_two_gigabytes_is_refused_at_once() -> None:
    inbox = Inbox(1000)
    inbox.feed(codec.message_head("get_table", codec.CALL, 8) + b"\x0b\x00\x01\x7f\xff\xff\xff")
    with pytest.raises(RejectedError, match="2147483647") as rejected:
        inbox.take(0.0)
    assert rejected.value.header is not None
    assert rejected.value.header.seqid == 8


def test_replies_are_no_requests() -> None:
    inbox = Inbox(1000)
    inbox.feed(codec.encode_reply(services.METHODS["get_table"], 1, samples.table()))
    with pytest.raises(RejectedError, match="not a call"):
        inbox.take(0.0)
