"""kill -9 of the service, or of PostgreSQL below it, in the middle of commits.

No acknowledged commit is lost, and none is partial or doubled. Clients behave as they should: after a lost connection
they ask again, with the same request id and the same instant.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.commit_load import Run, check, planned
from tests.fault.killable import Killable, Stubborn
from tests.lengths import long, slow
from tests.postgres_server import PostgresServer
from tests.stores import store_url

ROUNDS = pytest.mark.parametrize(
    ("commits", "kills"),
    [(100, 5), pytest.param(long(600), long(200), marks=slow(1_200))],
    ids=["quick", "long"],
)


@ROUNDS
def test_the_service_is_killed_in_the_middle_of_commits(tmp_path: Path, commits: int, kills: int) -> None:
    service = Killable(store_url(tmp_path), f"{tmp_path}/warehouse")

    def kill() -> None:
        service.kill()
        service.start()

    commit_over_kills(service, store_url(tmp_path), commits, kills, kill)
    assert service.kills == kills + 1


@ROUNDS
def test_postgresql_is_killed_in_the_middle_of_commits(
    own_postgres: PostgresServer, own_url: str, tmp_path: Path, commits: int, kills: int
) -> None:
    service = Killable(own_url, f"{tmp_path}/warehouse")

    def kill() -> None:
        own_postgres.kill()
        own_postgres.start()

    commit_over_kills(service, own_url, commits, kills, kill)
    assert service.kills == 1, "the service outlives its store"


def commit_over_kills(service: Killable, url: str, commits: int, kills: int, kill: Callable[[], None]) -> None:
    chance = random.Random(commits)
    began = time.monotonic()
    try:
        service.start()
        client = Stubborn(service)
        client.ask(lambda wire: wire.create())
        client.close()
        run = Run(service, planned(commits, chance), commits)
        run.go(kills, chance, kill)
        service.kill()
    finally:
        service.end()
    check(url, run)
    assert run.lost > kills // 2, "hardly a request was cut off: nothing was tested"
    print(
        f"{commits} commits, {kills} kills, {run.lost} requests cut off, {len(run.reads)} reads, "
        f"{time.monotonic() - began:.0f} s"
    )
