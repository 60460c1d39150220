"""Many threads on one store: nothing is lost, and nothing is seen in the wrong order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lakemark_server.kv import Store, StoreClosed, Transaction, counter

THREADS = 8


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs ``work(0..threads-1)`` at the same time and raises the first error."""
    barrier = threading.Barrier(threads)

    def run(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(run, number) for number in range(threads)]:
            future.result()


def number_at(tx: Transaction, key: bytes) -> int:
    return int(tx.get(key) or b"0")


def test_no_increment_is_lost(store: Store) -> None:
    each = 40

    def increment(tx: Transaction) -> None:
        tx.set(b"read", b"%d" % (number_at(tx, b"read") + 1))
        tx.add(b"added", 1)

    together(lambda number: [store.transact(increment, attempts_max=1_000) for _ in range(each)] and None)
    assert store.read(lambda tx: (tx.get(b"read"), counter(tx.get(b"added")))) == (
        b"%d" % (THREADS * each),
        THREADS * each,
    )


def test_transfers_keep_the_sum_that_every_reader_sees(store: Store) -> None:
    accounts = [b"account/%d" % number for number in range(6)]
    store.transact(lambda tx: [tx.set(account, b"100") for account in accounts])
    sums: list[int] = []

    def transfer(chooser: random.Random) -> Callable[[Transaction], None]:
        giver, taker = chooser.sample(accounts, 2)

        def body(tx: Transaction) -> None:
            amount = min(chooser.randint(1, 20), number_at(tx, giver))
            tx.set(giver, b"%d" % (number_at(tx, giver) - amount))
            tx.set(taker, b"%d" % (number_at(tx, taker) + amount))

        return body

    def work(number: int) -> None:
        chooser = random.Random(number)
        for _ in range(40):
            if number % 4 == 0:
                sums.append(store.read(lambda tx: sum(int(v) for _, v in tx.get_range(b"account/", b"account0"))))
            else:
                store.transact(transfer(chooser), attempts_max=1_000)

    together(work)
    assert set(sums) == {600}
    assert store.read(lambda tx: sum(int(v) for _, v in tx.get_range(b"account/", b"account0"))) == 600


def test_the_total_order_of_inserts_has_no_gap(store: Store) -> None:
    """Every writer appends after the last row that it sees: a phantom would overwrite or skip one."""

    def append(writer: int) -> Callable[[Transaction], None]:
        def body(tx: Transaction) -> None:
            last = tx.get_range(b"log/", b"log0", limit=1, reverse=True)
            position = int(last[0][0][4:]) + 1 if last else 0
            tx.set(b"log/%06d" % position, b"%d" % writer)

        return body

    together(lambda number: [store.transact(append(number), attempts_max=1_000) for _ in range(20)] and None)
    rows = store.read(lambda tx: tx.get_range(b"log/", b"log0"))
    assert [key for key, _ in rows] == [b"log/%06d" % position for position in range(THREADS * 20)]
    assert sorted(value for _, value in rows) == sorted(b"%d" % number for number in range(THREADS) for _ in range(20))


def test_a_register_is_linearizable(store: Store) -> None:
    """Real time orders what does not overlap: a register that only counts up must never show an older number.

    For a counting register this is all that linearizability asks: writes take distinct numbers, and whatever began
    after an operation had ended saw at least its number (a write: a larger one).
    """
    history: list[tuple[int, int, int, bool]] = []

    def increment(tx: Transaction) -> int:
        number = number_at(tx, b"register") + 1
        tx.set(b"register", b"%d" % number)
        return number

    def work(number: int) -> None:
        for _ in range(40):
            writes = number % 2 == 0
            began = time.monotonic_ns()
            seen = (
                store.transact(increment, attempts_max=1_000)
                if writes
                else store.read(lambda tx: int(tx.get(b"register") or b"0"))
            )
            history.append((began, time.monotonic_ns(), seen, writes))

    together(work)
    written = [seen for _, _, seen, writes in history if writes]
    assert sorted(written) == list(range(1, len(written) + 1))
    for _, ended, earlier, _ in history:
        for began, _, later, writes in history:
            if ended < began:
                assert earlier < later if writes else earlier <= later


def test_close_decides_every_commit_that_was_handed_in(store: Store, open_again: Callable[[], Store]) -> None:
    """Whoever got no error finds the row after the restart, whoever got one does not."""
    acknowledged: list[bytes] = []
    refused: list[bytes] = []
    started = threading.Semaphore(0)

    def work(number: int) -> None:
        if number == 0:
            for _ in range(THREADS):
                started.acquire()
            store.close()
            return
        for row in range(10_000):
            key = b"%d/%d" % (number, row)
            try:
                store.transact(lambda tx, key=key: tx.set(key, b""))  # type: ignore[misc]
            except StoreClosed:
                refused.append(key)
                return
            acknowledged.append(key)
            started.release()

    together(work)
    assert len(refused) == THREADS - 1
    again = open_again()
    try:
        assert {key for key, _ in again.read(lambda tx: tx.get_range(b"", b"z"))} == set(acknowledged)
    finally:
        again.close()
