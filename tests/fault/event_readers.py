"""Readers of the log while services are killed: one that keeps its place itself, and members of a consumer."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Final

import grpc

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from tests.fault.killable import LOST, Killable

HEARTBEAT_MS: Final = 200
_TAKEN: Final = {grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION}
"""Another member has the consumer now."""


class Reader(threading.Thread):
    """Reads until ``stop``. ``last``: up to where it has come."""

    def __init__(self, name: str, services: Sequence[Killable], seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.last = self.streams = 0
        self.error: BaseException | None = None
        self._services = services
        self._chance = random.Random(f"{seed} {name}")
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                self.streams += 1
                try:
                    with grpc.insecure_channel(self._chance.choice(self._services).address()) as channel:
                        self.read(EventServiceStub(channel))
                except grpc.RpcError as error:
                    if error.code() not in LOST | _TAKEN:  # type: ignore[attr-defined]
                        raise
                    self._stopped.wait(0.02)
        except BaseException as error:
            self.error = error
            raise

    def read(self, stub: EventServiceStub) -> None:
        """Reads one stream, until it breaks or ``stop``."""
        raise NotImplementedError


class ExactlyOnce(Reader):
    """Keeps its place with what it has seen."""

    def __init__(self, name: str, services: Sequence[Killable], seed: int) -> None:
        super().__init__(name, services, seed)
        self.offsets: list[int] = []
        self._place = pb.EventPosition()

    def read(self, stub: EventServiceStub) -> None:
        for response in stub.WatchEvents(pb.WatchEventsRequest(begin=self._place, heartbeat_ms=HEARTBEAT_MS)):
            self.offsets += [event.offset for event in response.events]
            self._place = pb.EventPosition(after=response.upto, epoch=response.epoch)
            self.last = response.upto
            if self._stopped.is_set():
                return


class Group:
    """What all members of a consumer have seen, in the order in which they saw it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: list[int] = []
        self._lock = threading.Lock()

    def see(self, offsets: Sequence[int]) -> None:
        with self._lock:
            self.offsets += offsets


class Member(Reader):
    """Acknowledges what it has seen: after that, it is not told again."""

    def __init__(self, name: str, group: Group, services: Sequence[Killable], seed: int) -> None:
        super().__init__(name, services, seed)
        self._group = group

    def read(self, stub: EventServiceStub) -> None:
        consumer = self._group.name
        request = pb.WatchEventsRequest(consumer=consumer, member=self.name, heartbeat_ms=HEARTBEAT_MS)
        for response in stub.WatchEvents(request):
            if response.events:
                self._group.see([event.offset for event in response.events])
                done = pb.AcknowledgeEventsRequest(
                    consumer=consumer, offset=response.upto, epoch=response.epoch, token=response.token
                )
                stub.AcknowledgeEvents(done)
            if not response.waiting:
                self.last = max(self.last, response.upto)
            if self._stopped.is_set():
                return
