"""Keeps the instants of a client's writers alive, with one thread for all that starts when the first needs it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lakemark.client.calls import Calls
from lakemark_core.errors import LakemarkError
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub
from lakemark_proto.v1.types_pb2 import TableName

_BEATS_PER_TIMEOUT = 4
_INTERVAL_S_MIN = 0.02


@dataclass(slots=True)
class Beat:
    """One writer's heartbeat. ``lost`` is true once the service has said that the instant is no longer alive."""

    table: TableName
    instant: int
    interval_s: float
    due: float
    lost: bool = False


class Heartbeats:
    """Heartbeats of all writers of a client. Thread-safe."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = TimelineServiceStub(calls.channel)
        self._changed = threading.Condition()
        self._beats: dict[int, Beat] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, table: TableName, instant: int, timeout_ms: int) -> Beat:
        """Keeps the instant alive from now on. ``timeout_ms``: after this time without a heartbeat it would be given
        up."""
        interval_s = max(timeout_ms / 1000 / _BEATS_PER_TIMEOUT, _INTERVAL_S_MIN)
        beat = Beat(table, instant, interval_s, time.monotonic() + interval_s)
        with self._changed:
            self._beats[id(beat)] = beat
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="lakemark-heartbeat", daemon=True)
                self._thread.start()
            self._changed.notify()
        return beat

    def remove(self, beat: Beat) -> None:
        """Ends a heartbeat."""
        with self._changed:
            self._beats.pop(id(beat), None)

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._beats.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                wait_s = min((beat.due - now for beat in self._beats.values()), default=None)
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                due = [beat for beat in self._beats.values() if beat.due <= now]
                for beat in due:
                    beat.due = now + beat.interval_s
            for beat in due:
                self._send(beat)

    def _send(self, beat: Beat) -> None:
        request = pb.HeartbeatRequest(table=beat.table, instants=[beat.instant])
        try:
            answer = self._call(self._stub.Heartbeat, request, mutation=True, timeout_s=beat.interval_s)
        except LakemarkError:
            return  # the next beat tries again; if the service stays away, the writer's own calls fail
        if beat.instant in answer.lost:
            beat.lost = True
            self.remove(beat)
