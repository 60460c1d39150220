"""Whose check is next, and how many may wait."""

from __future__ import annotations

import threading

from lakemark_hms.wire.logins import Logins

SECONDS = 20


def test_hosts_take_turns_and_each_may_have_so_many_waiting() -> None:
    logins = Logins(1, 3)
    entered, gate, done = threading.Event(), threading.Event(), threading.Event()
    begun: list[str] = []

    def block() -> None:
        entered.set()
        gate.wait(SECONDS)

    assert logins.put("many", block)
    assert entered.wait(SECONDS)
    taken = [logins.put("many", lambda number=number: begun.append(f"many {number}")) for number in range(5)]  # type: ignore[misc]
    assert taken == [True, True, True, False, False]
    assert logins.put("few", lambda: begun.append("few"))
    gate.set()
    assert logins.put("last", done.set)
    assert done.wait(SECONDS)
    assert begun.index("few") == 1
    logins.stop()


def test_a_host_whose_checks_are_done_may_have_others() -> None:
    logins = Logins(1, 1)
    for _ in range(3):
        done = threading.Event()
        assert logins.put("host", done.set)
        assert done.wait(SECONDS)
    logins.stop()
