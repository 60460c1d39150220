"""Calls to the service: one channel, deadlines, and retries that never apply a change twice.

Every request of Lakemark is idempotent. Reads are by nature; mutations carry a request id, an instant or a sequence
number that stays the same over retries. So requests are repeated both when the error is retryable and when the outcome
is unknown. A service that is overloaded says when it wants to be asked again, and is asked then if the deadline allows.

A service that has answered before is waited for, because it may be restarting. If nobody has ever listened at the
address, the first call fails at once: the address is wrong, or no service runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

import grpc

from lakemark.client.addresses import parse_addresses
from lakemark.client.channels import open_channel
from lakemark.client.failures import is_not_sent, nobody_listens, translate
from lakemark_core.errors import FailedPrecondition, InvalidArgument, LakemarkError, Outcome, Overloaded
from lakemark_core.user import USER_KEY, user_name

TIMEOUT_S_DEFAULT: Final = 60.0

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts. They double each time, with jitter so that many clients do not retry together."""

    first_s: float = 0.05
    most_s: float = 2.0
    attempts_max: int = 12

    def pause_s(self, attempt: int) -> float:
        """The pause in seconds after this attempt (0 is the first)."""
        return min(self.most_s, self.first_s * 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311

    @staticmethod
    def told_s(overloaded: Overloaded) -> float:
        """At least the pause that the service asked for, with jitter; 0 if it did not ask for one."""
        told = overloaded.details.get("retry_after_ms", "")
        return int(told) / 1000 * random.uniform(1.0, 1.5) if told.isdecimal() else 0.0  # noqa: S311


class Calls:
    """Thread-safe. ``timeout_s`` covers a call with all of its retries."""

    def __init__(self, target: str, timeout_s: float, backoff: Backoff, sleep: Callable[[float], None] = time.sleep):
        if timeout_s <= 0:
            raise InvalidArgument(f"timeout must be positive, not {timeout_s}")
        addresses = parse_addresses(target)
        self.target = ",".join(addresses)
        self.channel = open_channel(addresses)
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._sleep = sleep
        self._connected = False
        self._closed = False

    def __call__(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        mutation: bool = False,
        timeout_s: float | None = None,
        tell_user: bool = False,
    ) -> Response:
        """The response. ``tell_user``: the request tells the service who asks.

        Raises the error of the service, or Unavailable, or UnknownOutcome for a mutation.
        """
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        metadata = ((USER_KEY, user_name().encode("ascii", "replace").decode()),) if tell_user else None
        unknown: LakemarkError | None = None
        attempt = refused = 0
        while True:
            try:
                answer = method(request, timeout=max(deadline - time.monotonic(), 0.001), metadata=metadata)
            except grpc.RpcError as error:
                failure = translate(error, self.target, mutation=mutation)
                self._connected = self._connected or not is_not_sent(error)
                if not self._connected and nobody_listens(error):
                    raise failure from None
            except ValueError as error:
                if self._closed:
                    raise _closed() from error
                raise
            else:
                self._connected = True
                return answer
            if failure.outcome is Outcome.FATAL:
                raise failure
            if failure.outcome is Outcome.UNKNOWN:
                unknown = failure
            pause = self._backoff.pause_s(attempt + refused)
            if isinstance(failure, Overloaded):
                pause = max(pause, self._backoff.told_s(failure))
                refused += 1
            else:
                attempt += 1
            if attempt >= self._backoff.attempts_max or time.monotonic() + pause >= deadline:
                # An earlier attempt may have been applied, even if the last one was not.
                raise unknown or failure
            self._sleep(pause)

    def follow(
        self,
        method: grpc.UnaryStreamMultiCallable[Request, Response],
        request: Callable[[], Request],
        again: tuple[type[LakemarkError], ...] = (),
    ) -> Generator[Response]:
        """The responses of a stream that is asked for again whenever it ends, each time with a new ``request``.

        It is asked for again after errors that are retryable, or one of ``again``, until no response has come for the
        time of a call. Raises what ends it.
        """
        since = time.monotonic()
        attempt = 0
        while True:
            try:
                for response in self._responses(method, request()):
                    since, attempt = time.monotonic(), 0
                    yield response
            except LakemarkError as error:
                pause = self._backoff.pause_s(attempt)
                if isinstance(error, Overloaded):
                    pause = max(pause, self._backoff.told_s(error))
                retried = isinstance(error, again) or error.outcome is not Outcome.FATAL
                if not retried or not self._connected or time.monotonic() + pause - since >= self._timeout_s:
                    raise
                attempt += 1
                self._sleep(pause)

    def _responses(
        self, method: grpc.UnaryStreamMultiCallable[Request, Response], request: Request
    ) -> Generator[Response]:
        try:
            call = method(request)
            try:
                for response in call:
                    self._connected = True
                    yield response
            finally:
                call.cancel()
        except grpc.RpcError as error:
            self._connected = self._connected or not is_not_sent(error)
            if self._closed:
                raise _closed() from None
            raise translate(error, self.target, mutation=False) from None
        except ValueError as error:
            if self._closed:
                raise _closed() from error
            raise

    def close(self) -> None:
        """Closes the channel. Running calls fail."""
        self._closed = True
        self.channel.close()


def _closed() -> FailedPrecondition:
    return FailedPrecondition("this client is closed; connect again")
