"""The calls of the ``hms`` benchmark: one client's code and one set of objects for every system.

Requests are encoded before the clock starts, sent over raw sockets by one thread, and replies are only counted. So the
figures are the metastore's and not this client's. The first call of each kind goes through generated Thrift code with
the protocol in C, and its reply is checked; replies to the same request have as many bytes as the first one.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import (
    Database,
    FieldSchema,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer

DATABASE: Final = "bench"
TABLE: Final = "t"
HOURS: Final = 100
BATCH: Final = 1_000
REPLY_TIMEOUT_S: Final = 120.0
COLUMNS: Final = [FieldSchema(f"column_{number:02}", "bigint", None) for number in range(20)]
KEYS: Final = [FieldSchema("dt", "string", None), FieldSchema("hour", "int", None)]

_PARQUET: Final = "org.apache.hadoop.hive.ql.io.parquet."
_BUFFER_BYTES: Final = 1 << 20
_OF_ADDRESS: Final = 500  # idle connections; the service takes 1,024
_KIND_AT, _REPLY = 3, 2  # in the head of a message

Call = Callable[[Any], object]
"""Makes a call with a generated client, and checks its result if it returns one."""


@dataclass(frozen=True)
class System:
    """A metastore under test; ``location`` is the directory of the benchmark's database."""

    name: str
    port: int
    location: str


def filters(partitions: int) -> dict[int, str]:
    """Filters by the number of partitions that they select, of a table with so many (at least 100 days)."""
    days = partitions // HOURS
    some = max(1, days * 12 // 100)
    first = days * 4 // 10
    return {
        1: f'dt = "{day(first)}" and hour = 17',
        HOURS: f'dt = "{day(first)}"',
        some * HOURS: f'dt >= "{day(first)}" and dt < "{day(first + some)}"',
    }


def day(number: int) -> str:
    """The value of the first partition column."""
    return f"d{number:03}"


@contextmanager
def connected(port: int) -> Iterator[Any]:
    """A client whose protocol is in C. It raises an error instead of falling back to a slow one."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))
    finally:
        transport.close()


def create_table(system: System) -> None:
    """The database, and the table in it."""
    with connected(system.port) as client:
        client.create_database(Database(DATABASE, "", system.location, {}))
        client.create_table(table(system, TABLE))


def table(system: System, name: str, *, managed: bool = False, parameters: dict[str, str] | None = None) -> Table:
    """A table with 20 columns and 2 partition columns."""
    return Table(
        dbName=DATABASE,
        tableName=name,
        owner="bench",
        sd=_storage(f"{system.location}/{name}"),
        partitionKeys=KEYS,
        parameters={**({} if managed else {"EXTERNAL": "TRUE"}), **(parameters or {})},
        tableType="MANAGED_TABLE" if managed else "EXTERNAL_TABLE",
    )


def partition(system: System, day_name: str, hour: str, name: str = TABLE) -> Partition:
    """A partition of a table."""
    place = f"{system.location}/{name}/dt={day_name}/hour={hour}"
    return Partition([day_name, hour], DATABASE, name, 0, 0, _storage(place), {})


def partition_batches(system: System, partitions: int, name: str = TABLE) -> Iterator[list[Partition]]:
    """So many partitions of a table, BATCH at a time, in order; each day has ``HOURS`` of them."""
    for begin in range(0, partitions, BATCH):
        numbers = range(begin, min(begin + BATCH, partitions))
        yield [partition(system, day(number // HOURS), str(number % HOURS), name) for number in numbers]


def add_partitions(batch: list[Partition]) -> bytes:
    """The encoded call that adds them."""
    return encoded(lambda client: client.send_add_partitions(batch))


def encoded(send: Call) -> bytes:
    """What a generated client sends; ``send`` calls one of its ``send_…`` methods."""
    buffer = TMemoryBuffer()
    send(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(buffer, fallback=False)))
    return bytes(buffer.getvalue())


class Wire:
    """A raw connection with one call at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_BUFFER_BYTES)

    def call(self, request: bytes, reply_bytes: int) -> float:
        """How many seconds a call takes whose reply has so many bytes. Raises ConnectionError for another reply."""
        began = time.perf_counter()
        self._socket.sendall(request)
        left = reply_bytes
        while left > 0:
            count = self._socket.recv_into(self._buffer)
            if not count:
                raise ConnectionError("the metastore closed the connection in the middle of a reply")
            left -= count
        if left:
            raise ConnectionError(f"a reply has {-left} bytes more than the first one: {bytes(self._buffer[:300])!r}")
        return time.perf_counter() - began

    def close(self) -> None:
        self._socket.close()


class Recorded(NamedTuple):
    """A call that was made and checked once: its request, and how many bytes its reply has."""

    request: bytes
    reply_bytes: int


def recorded(port: int, call: Call) -> Recorded:
    """Makes a call with a generated client, and notes what went over the wire."""
    tap = _Tap("127.0.0.1", port)
    transport = TBufferedTransport(tap)
    transport.open()
    with closing(transport):
        call(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False)))
        return Recorded(bytes(tap.written), tap.read_bytes)


class _Tap(TSocket):  # type: ignore[misc]
    """A socket that remembers what was written, and how much was read."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.setTimeout(REPLY_TIMEOUT_S * 1_000)
        self.written = bytearray()
        self.read_bytes = 0

    def read(self, size: int) -> bytes:
        data: bytes = super().read(size)
        self.read_bytes += len(data)
        return data

    def write(self, data: bytes) -> None:
        self.written += data
        super().write(data)


class Rate(NamedTuple):
    """``client_us``: processor time of this process for a call, to see whether it was the limit."""

    calls_per_s: float
    calls: int
    client_us: float


def rate(port: int, connections: int, seconds: float, one: Recorded) -> Rate:
    """Repeats a recorded call over this many connections, each with one call at a time, for about ``seconds``."""
    with ExitStack() as stack:
        poll = stack.enter_context(closing(select.epoll()))
        sockets: dict[int, socket.socket] = {}
        left: dict[int, int] = {}
        for _ in range(connections):
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets[opened.fileno()] = opened
            left[opened.fileno()] = one.reply_bytes
            poll.register(opened.fileno(), select.EPOLLIN)
        buffer, calls = bytearray(_BUFFER_BYTES), 0
        began, cpu = time.perf_counter(), time.process_time()
        for opened in sockets.values():
            opened.sendall(one.request)
        end = began + seconds
        while time.perf_counter() < end:
            ready = poll.poll(REPLY_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no reply within {REPLY_TIMEOUT_S:.0f} s, or one that is shorter than the first")
            for number, _ in ready:
                count = sockets[number].recv_into(buffer)
                if left[number] == one.reply_bytes and buffer[_KIND_AT] != _REPLY:
                    raise ConnectionError(f"an error instead of a reply: {bytes(buffer[:count])!r}")
                left[number] -= count
                if not left[number]:
                    calls += 1
                    left[number] = one.reply_bytes
                    sockets[number].sendall(one.request)
                elif left[number] < 0 or not count:
                    raise ConnectionError(f"not the reply of the first call: {bytes(buffer[:300])!r}")
        took = time.perf_counter() - began
        return Rate(calls / took, calls, (time.process_time() - cpu) * 1e6 / max(1, calls))


@contextmanager
def idle_connections(port: int, count: int, one: Recorded) -> Iterator[None]:
    """So many connections that have made one call each, and then say nothing. They come from several addresses."""
    with ExitStack() as stack:
        opened = []
        for number in range(count):
            source = f"127.0.0.{2 + number // _OF_ADDRESS}"
            made = socket.create_connection(("127.0.0.1", port), REPLY_TIMEOUT_S, (source, 0))
            opened.append(stack.enter_context(made))
            _ask(made, one)
        yield
        for made in opened:
            _ask(made, one)


def _ask(connection: socket.socket, one: Recorded) -> None:
    connection.sendall(one.request)
    if len(connection.recv(one.reply_bytes, socket.MSG_WAITALL)) != one.reply_bytes:
        raise ConnectionError("the metastore closed a connection, or gave another reply than before")


def median_s(port: int, requests: Sequence[Recorded]) -> float:
    """The median time of these calls, one after the other on one connection."""
    with closing(Wire(port)) as wire:
        times = sorted(wire.call(*one) for one in requests)
    return times[len(times) // 2]


def _storage(location: str) -> StorageDescriptor:
    return StorageDescriptor(
        cols=COLUMNS,
        location=location,
        inputFormat=f"{_PARQUET}MapredParquetInputFormat",
        outputFormat=f"{_PARQUET}MapredParquetOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=SerDeInfo("", f"{_PARQUET}serde.ParquetHiveSerDe", {"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
