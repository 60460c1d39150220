"""Kills things at random moments, lets them lie for a while, and starts them again."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Victim(Protocol):
    """What can be killed (SIGKILL), and started again with what it had."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Habits:
    """How often one of the victims is killed (seconds between), and for how long it stays dead at most."""

    every_s: tuple[float, float]
    dead_s_max: float


class Killer(threading.Thread):
    """Kills one of the victims at a time until ``stop``, which returns when all are alive."""

    def __init__(self, name: str, victims: Sequence[Victim], habits: Habits, seed: int, kills: Counter[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.error: BaseException | None = None
        self._victims, self._habits, self._kills = victims, habits, kills
        self._chance = random.Random(f"{seed} {name}")
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._chance.uniform(*self._habits.every_s)):
                victim = self._chance.choice(self._victims)
                victim.kill()
                self._kills[self.name] += 1
                self._stopped.wait(self._chance.uniform(0, self._habits.dead_s_max))
                victim.start()
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        self._stopped.set()
        self.join()
