"""The client side of the ``commit`` benchmark: one process, with one thread for each writer.

The benchmark is meant for a machine with two cores. The service and the writers are each limited to one core by their
interpreter lock, so with one process each has a core. Writers send requests that are serialized from prepared messages
and share one channel, so that a commit costs them little. What it costs is reported.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

import grpc

from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub
from lakemark_proto.v1.types_pb2 import ColumnStatistics, DataFile, DataFileList, DataFiles, TableName, Value

PARTITIONS: Final = 100
RETRIABLE: Final = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})


@dataclass(frozen=True)
class Load:
    """Ends when ``seconds`` have passed, or after ``commits_max`` commits."""

    address: str
    table: str
    writers: int
    seconds: float
    commits_max: int
    two_requests: bool = False
    """Whether each commit is an OpenInstant and a Commit; else each commit opens the writer's next instant."""


@dataclass
class Tally:
    """What the writers did. A latency covers all requests of one commit, in seconds."""

    latencies_s: list[float] = field(default_factory=list)
    retries: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0


def main(load: Load, to_parent: Connection) -> None:
    """Sends "ready", waits for any message, works, and sends the Tally, or the error as text."""
    with grpc.insecure_channel(load.address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        to_parent.send("ready")
        to_parent.recv()
        try:
            to_parent.send(_work(load, TimelineServiceStub(channel)))
        except Exception as error:
            to_parent.send(repr(error))


def _work(load: Load, stub: TimelineServiceStub) -> Tally:
    tallies = [Tally() for _ in range(load.writers)]
    failures: list[Exception] = []
    share = load.commits_max // load.writers
    began, cpu_began = time.monotonic(), time.process_time()

    def run(seed: int, tally: Tally) -> None:
        try:
            _write(stub, load, random.Random(seed), tally, began + load.seconds, share)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed, tally)) for seed, tally in enumerate(tallies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Tally(
        [latency for tally in tallies for latency in tally.latencies_s],
        sum(tally.retries for tally in tallies),
        time.monotonic() - began,
        time.process_time() - cpu_began,
    )


def _write(
    stub: TimelineServiceStub, load: Load, choice: random.Random, tally: Tally, end: float, commits_max: int
) -> None:
    """Appends one file after another. A refused commit counts as a retry and begins again."""
    opening, commit = _requests(load.table, 1)
    if not load.two_requests:
        commit.next.CopyFrom(opening)
    instant = 0
    while len(tally.latencies_s) < commits_max and (began := time.monotonic()) < end:
        try:
            _place(commit, instant or stub.OpenInstant(opening).instant, choice)
            instant = stub.Commit(commit).next.instant
        except grpc.RpcError as error:
            if error.code() not in RETRIABLE:
                raise
            tally.retries += 1
            instant = 0
        else:
            tally.latencies_s.append(time.monotonic() - began)
    if instant:
        stub.RollbackInstant(pb.RollbackInstantRequest(table=opening.table, instant=instant))


def append(stub: TimelineServiceStub, table: str, choice: random.Random, files: int) -> None:
    """One commit of ``files`` files in random partitions."""
    opening, commit = _requests(table, files)
    _place(commit, stub.OpenInstant(opening).instant, choice)
    stub.Commit(commit)


def _place(commit: pb.CommitRequest, instant: int, choice: random.Random) -> None:
    """Gives the files the instant's directory and random partitions."""
    commit.instant = instant
    for file in commit.added.list.files:
        day = choice.randrange(PARTITIONS)
        file.path = f"{commit.instant}/day={day}/{choice.getrandbits(64):016x}/part-0.parquet"
        file.partition[0].integer = day


def _requests(table: str, files: int) -> tuple[pb.OpenInstantRequest, pb.CommitRequest]:
    name = TableName(database="default", table=table)
    added = DataFiles(list=DataFileList(files=[_data_file()] * files))
    opening = pb.OpenInstantRequest(table=name, operation=pb.APPEND, start=True)
    return opening, pb.CommitRequest(table=name, added=added)


def _data_file() -> DataFile:
    """A file entry with bounds of three columns, as a writer gets them from the file's footer."""
    bounds = [
        (1, Value(integer=1), Value(integer=100_000)),
        (2, Value(text="AA"), Value(text="YV")),
        (3, Value(floating=-0.5), Value(floating=1301.0)),
    ]
    return DataFile(
        size_bytes=1 << 20,
        row_count=100_000,
        partition=[Value(integer=0)],
        statistics=[ColumnStatistics(column_id=n, min=low, max=high, null_count=0) for n, low, high in bounds],
    )
