"""Watchers of events for the ``events`` benchmark: streams in a process of their own, and one that tells delays."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc

from benchmarks import commit_hot
from benchmarks.service import Service
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub

JOIN_S: Final = 60.0


@contextmanager
def watching(address: str, watchers: int) -> Iterator[Connection]:
    """So many streams from now on, in a process of their own. When "stop" is sent, it sends the events that each stream
    has had, once all have had those that there are."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_watch_all, args=(address, watchers, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
    finally:
        process.join(JOIN_S)


def _watch_all(address: str, watchers: int, to_parent: Connection) -> None:
    counts = [0] * watchers
    upto = [0] * watchers
    begun = threading.Barrier(watchers + 1)

    def watch(place: int) -> None:
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stream = EventServiceStub(channel).WatchEvents(pb.WatchEventsRequest(begin=pb.EventPosition(end=True)))
            first = True
            for response in stream:
                counts[place] += len(response.events)
                upto[place] = response.upto
                if first:
                    begun.wait()
                    first = False

    for place in range(watchers):
        threading.Thread(target=watch, args=(place,), daemon=True).start()
    begun.wait()
    to_parent.send("ready")
    to_parent.recv()
    with grpc.insecure_channel(address) as channel:
        end = EventServiceStub(channel).GetEventLog(pb.GetEventLogRequest()).last
    deadline = time.monotonic() + JOIN_S
    while min(upto) < end and time.monotonic() < deadline:
        time.sleep(0.05)
    to_parent.send(counts if min(upto) >= end else f"a stream has come to {min(upto)} of {end}")


def delays(service: Service, table: str, commits: int) -> dict[str, Any]:
    """From the acknowledgement of a commit to its event at a watcher in the same process, one commit at a time."""
    arrived: dict[int, float] = {}
    new = threading.Condition()
    ready = threading.Event()
    commit_hot.fill(service, table, 1, 1)
    with grpc.insecure_channel(service.grpc_address) as channel:
        request = pb.WatchEventsRequest(
            begin=pb.EventPosition(end=True), filter=pb.EventFilter(kinds=[pb.COMMITTED], patterns=[f"default.{table}"])
        )
        stream = EventServiceStub(channel).WatchEvents(request)

        def watch() -> None:
            try:
                for response in stream:
                    now = time.perf_counter()
                    with new:
                        arrived.update((event.commit.version, now) for event in response.events)
                        new.notify()
                    ready.set()
            except grpc.RpcError:
                return  # cancelled at the end

        thread = threading.Thread(target=watch)
        thread.start()
        ready.wait()
        waited_ms = []
        with commit_hot.writer(service, table) as commit:
            for version in range(2, commits + 2):
                commit()
                acknowledged = time.perf_counter()
                with new:
                    if not new.wait_for(lambda version=version: version in arrived, JOIN_S):  # type: ignore[misc]
                        raise AssertionError(f"no event of version {version} has arrived")
                waited_ms.append(max(0.0, arrived[version] - acknowledged) * 1e3)
        stream.cancel()
        thread.join()
    cuts = statistics.quantiles(waited_ms, n=100)
    return {"watch_p50_ms": round(cuts[49], 2), "watch_p99_ms": round(cuts[98], 2), "watch_commits": commits}


def replay(service: Service) -> dict[str, Any]:
    """All events from the first one on, in one stream."""
    with grpc.insecure_channel(service.grpc_address) as channel:
        stub = EventServiceStub(channel)
        end = stub.GetEventLog(pb.GetEventLogRequest()).last
        began, events = time.perf_counter(), 0
        stream = stub.WatchEvents(pb.WatchEventsRequest())
        for response in stream:
            events += len(response.events)
            if response.upto >= end:
                break
        seconds = time.perf_counter() - began
        stream.cancel()
    return {"replay_events": events, "replay_per_s": round(events / seconds)}
