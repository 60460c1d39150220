"""A client of several services on one store. It asks again until it learns the outcome of a request, or gives up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from tests.histories import Outcome
from tests.wire import Refused, Wire

T = TypeVar("T")

ATTEMPTS_MAX = 2_000
GIVE_UP = 0.2


class Gone(Exception):
    """The service has refused the request for good; it had no effect."""


class Client:
    """The client of one thread. ``addresses`` give the address of each service, and may wait until there is one."""

    def __init__(self, addresses: Sequence[Callable[[], str]], chance: random.Random) -> None:
        self._addresses, self._chance = addresses, chance
        self._wires: dict[tuple[str, str], Wire] = {}
        self.unanswered = 0
        self.refusal = ""  # the code of the last refusal

    def ask(self, table: str, question: Callable[[Wire], T]) -> T:
        """Asks until there is an answer. Raises Gone."""
        outcome, answer = self.settle(table, question, give_up=0)
        if outcome != "ok" or answer is None:
            raise Gone
        return answer

    def settle(self, table: str, question: Callable[[Wire], T], give_up: float = GIVE_UP) -> tuple[Outcome, T | None]:
        outcome: Outcome = "refused"
        for _ in range(ATTEMPTS_MAX):
            address = self._chance.choice(self._addresses)()
            wire = self._wires.get((address, table)) or self._wires.setdefault((address, table), Wire(address, table))
            try:
                return "ok", question(wire)
            except grpc.RpcError as error:
                told = Refused(error)
            assert told.detail.code != "internal", told
            if told.detail.outcome == "fatal":
                self.refusal = told.detail.code
                return "refused", None
            if told.detail.outcome != "retryable":  # or there was no answer at all
                self.unanswered += 1
                outcome = "unknown"
                if self._chance.random() < give_up:
                    return outcome, None
            if not told.detail.outcome:
                time.sleep(0.01)  # as clients do, instead of asking a dead address in a tight loop
        return outcome, None

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
