"""Connections to the services of a list: calls go to one of them, and to the next one when it is away.

The services share a store, so any of them can be asked anything, and can be asked again what another one may have
done already: a request carries an id, an instant or a sequence number, which the store knows whoever writes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import grpc

from lakemark.client.failures import is_away, is_not_sent, nobody_listens

MESSAGE_BYTES_MAX: Final = 64 << 20

_OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # Retries are made by Calls, where outcomes are known.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


Metadata: TypeAlias = tuple[tuple[str, str], ...]


def open_channel(addresses: Sequence[str]) -> grpc.Channel:
    """Connects when the first call is made. Thread-safe."""
    channels = [grpc.insecure_channel(address, options=_OPTIONS) for address in addresses]
    return channels[0] if len(channels) == 1 else cast(grpc.Channel, _Channels(channels))


class _Channels:
    """What the generated stubs need of a channel."""

    def __init__(self, channels: Sequence[grpc.Channel]) -> None:
        self._channels = channels
        self._current = 0
        self._lock = threading.Lock()

    @property
    def current(self) -> int:
        """The place of the service that is asked first: the one that answered last."""
        return self._current

    def leave(self, place: int) -> None:
        """Goes to the next service, unless another thread has left this one already."""
        with self._lock:
            if self._current == place:
                self._current = (place + 1) % len(self._channels)

    def unary_unary(self, *arguments: Any, **named: Any) -> _Method:
        return _Method(self, [channel.unary_unary(*arguments, **named) for channel in self._channels])

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class _Method:
    """One method of every service of the list."""

    def __init__(self, channels: _Channels, methods: Sequence[grpc.UnaryUnaryMultiCallable[Any, Any]]) -> None:
        self._channels = channels
        self._methods = methods

    def __call__(self, request: Any, timeout: float, metadata: Metadata | None = None) -> Any:
        """The answer of the first service that can be reached, each asked once.

        A request that may have reached a service is not sent to another one here: whether it is asked again, and how
        its end is told, is decided by ``Calls``. It only goes elsewhere then.
        """
        deadline = time.monotonic() + timeout
        failure: grpc.RpcError | None = None
        for _ in self._methods:
            place = self._channels.current
            try:
                return self._methods[place](request, timeout=max(deadline - time.monotonic(), 0.001), metadata=metadata)
            except grpc.RpcError as error:
                if is_away(error):
                    self._channels.leave(place)
                if not is_not_sent(error):
                    raise
                # That nobody listens is said only if it is so everywhere.
                if failure is None or nobody_listens(failure):
                    failure = error
        assert failure is not None  # noqa: S101 - there is at least one service
        raise failure
