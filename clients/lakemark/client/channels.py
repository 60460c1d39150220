"""Connections to a list of services: calls go to one of them, and to the next one when that is away.

The services share a store, so each of them can answer any request. A request that another service may have applied
already can be repeated too: it carries an id, an instant or a sequence number, which the store recognizes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
    # Calls retries, because it knows which outcomes allow that.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


Metadata: TypeAlias = tuple[tuple[str, str], ...]


def open_channel(addresses: Sequence[str]) -> grpc.Channel:
    """A channel that connects on the first call. Thread-safe."""
    channels = [grpc.insecure_channel(address, options=_OPTIONS) for address in addresses]
    return channels[0] if len(channels) == 1 else cast(grpc.Channel, _Channels(channels))


class _Channels:
    """The part of a channel's interface that generated stubs use."""

    def __init__(self, channels: Sequence[grpc.Channel]) -> None:
        self._channels = channels
        self._current = 0
        self._lock = threading.Lock()

    @property
    def current(self) -> int:
        """The index of the service to ask first: the one that answered last."""
        return self._current

    def leave(self, place: int) -> None:
        """Moves on to the next service, unless another thread already has."""
        with self._lock:
            if self._current == place:
                self._current = (place + 1) % len(self._channels)

    def unary_unary(self, *arguments: Any, **named: Any) -> _Method:
        return _Method(self, [channel.unary_unary(*arguments, **named) for channel in self._channels])

    def unary_stream(self, *arguments: Any, **named: Any) -> _StreamMethod:
        return _StreamMethod(self, [channel.unary_stream(*arguments, **named) for channel in self._channels])

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class _Method:
    """One method of every service in the list."""

    def __init__(self, channels: _Channels, methods: Sequence[grpc.UnaryUnaryMultiCallable[Any, Any]]) -> None:
        self._channels = channels
        self._methods = methods

    def __call__(self, request: Any, timeout: float, metadata: Metadata | None = None) -> Any:
        """The response of the first service that can be reached. Each is asked once.

        A request that may have reached a service is not sent to another one here. ``Calls`` decides whether to repeat
        it, and the repetition goes to another service.
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
                # Report that nobody listens only if that is so at all addresses.
                if failure is None or nobody_listens(failure):
                    failure = error
        assert failure is not None  # noqa: S101 - there is at least one service
        raise failure


class _StreamMethod:
    """One method with a stream of responses, of every service in the list."""

    def __init__(self, channels: _Channels, methods: Sequence[grpc.UnaryStreamMultiCallable[Any, Any]]) -> None:
        self._channels = channels
        self._methods = methods

    def __call__(self, request: Any) -> _Responses:
        place = self._channels.current
        return _Responses(self._methods[place](request), lambda: self._channels.leave(place))


class _Responses:
    """A stream of one service. If the service goes away, the next stream is asked of another one."""

    def __init__(self, call: Any, leave: Callable[[], None]) -> None:
        self._call = call
        self._leave = leave

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:  # being stopped counts, too
                self._leave()
            raise

    def cancel(self) -> None:
        self._call.cancel()
