"""Somebody who never saw the page finds out what goes on, by links that can be seen, from the first page on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from lakemark_core.errors import CommitConflict
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.context.clock import now_ms
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.web.browsing import visit
from tests.integration.web.conftest import SETTINGS, Site
from tests.integration.web.test_optimizer_pages import Gated, fragmented, working
from tests.web_lake import DAY, MEGA, WebLake

YESTERDAY_MS = 26 * 3_600_000


class Clock:
    """That of the machine, or so many milliseconds before it."""

    def __init__(self) -> None:
        self.behind_ms = 0

    def __call__(self) -> int:
        return now_ms() - self.behind_ms


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A lake that was begun yesterday, and a service that plans."""
    clock = Clock()
    clock.behind_ms = YESTERDAY_MS
    settings = SETTINGS | {"optimizer": True, "optimizer_interval_s": 0.05}
    with running_service(tmp_path, clock, **settings) as service:
        lake = WebLake(service, attack="ann")
        lake.database("sales")
        orders = lake.table("orders")
        lake.put(orders, [130 * MEGA, 90 * MEGA], "2026-11-20", owner="nightly load")
        clock.behind_ms = 0
        late = lake.open(orders, t.OVERWRITE_PARTITIONS, ["2026-11-19"], owner="late job")
        lake.put(orders, [140 * MEGA] * 3, DAY, owner="hourly load")
        with pytest.raises(CommitConflict):
            lake.commit(orders, late, [MEGA])
        clicks = lake.table("clicks", **{"lakemark.optimize.enabled": "false"})
        for _ in range(3):
            lake.put(clicks, [20_000] * 10, owner="collector")
        yield service


def follow(page: Page, name: str | re.Pattern[str], where: str = "main") -> None:
    """Clicks a link that can be seen."""
    link = page.locator(where).get_by_role("link", name=name).first
    expect(link).to_be_visible()
    link.click()


def test_a_stranger_finds_out_what_goes_on(browser: Browser, service: Service) -> None:
    with connected(service) as client:
        fragmented(client)
        executor = Gated(client)
        with working(client, executor), visit(browser, Site(service)) as visited:
            page = visited.go("/")  # the only address that is typed

            # Which tables suffer from small files?
            follow(page, re.compile("suffers? from small or delta files: .*sales.clicks"))
            worst = page.locator("#rows").get_by_role("row").nth(1)
            expect(worst).to_contain_text("sales.clicks")
            expect(worst).to_contain_text("poor")
            follow(page, "sales.clicks", "#rows")
            expect(page.get_by_text("30 of 30 files are small; merging them would save 29 files")).to_be_visible()
            follow(page, "By partition")
            expect(page.get_by_role("row", name=f"day={DAY}")).to_contain_text("29")

            # What was committed in the last hour, and by whom?
            follow(page, "Tables", "header")
            recent = page.get_by_role("region", name="Committed in the last hour")
            expect(recent.get_by_role("row", name="collector")).to_contain_text("3")
            follow(page, "All commits", "#recent")
            commit = page.get_by_role("row", name="hourly load")
            expect(commit).to_contain_text("sales.orders")
            expect(commit).to_contain_text("append, 3 files with 30 rows added")

            # Why was a commit refused?
            follow(page, "Tables", "header")
            follow(page, "1 instant rolled back in the last hour")
            given_up = page.get_by_role("row", name="instant rolled back")
            expect(given_up).to_contain_text("commit to sales.orders refused")
            follow(page, "sales.orders", "#events")
            follow(page, "Conflicts")
            refused = page.get_by_role("row", name="late job")
            expect(refused).to_contain_text("Refused: commit to sales.orders refused")
            expect(refused).to_contain_text(f"in partition day={DAY} (policy 'partition')")

            # What did the table look like yesterday?
            follow(page, "Summary")
            expect(page.locator("#facts")).to_contain_text("671 MB")
            follow(page, "yesterday")
            expect(page.get_by_text("You see the table as of")).to_be_visible()
            expect(page.locator("#facts")).to_contain_text("231 MB")
            follow(page, "Files")
            expect(page.get_by_role("row", name="day=2026-11-20")).to_be_visible()
            expect(page.get_by_text(f"day={DAY}")).to_have_count(0)

            # What does the optimizer do, and why?
            follow(page, "Optimizer", "header")
            tasks = page.get_by_role("region", name="Tasks of all tables that wait or run")
            expect(tasks.get_by_role("row", name="d=a")).to_contain_text("running", timeout=15_000)
            expect(tasks.get_by_role("row", name="d=a")).to_contain_text("4 fragments of 4 needed")
            follow(page, "default.t", "#tasks")
            expect(page.locator("#state")).to_contain_text("Because")
            executor.gate.set()
            runs = page.get_by_role("region", name="Runs, newest first")
            expect(runs.get_by_text("4 → 1")).to_have_count(2, timeout=15_000)
            follow(page, "Tables", "header")
            expect(page.locator("#tiles")).to_contain_text("2 runs in the last hour, 6 files fewer")

            # And why does it leave another table alone?
            follow(page, "sales.clicks", "#rows")
            follow(page, "Optimizing")
            state = page.locator("#state")
            expect(state).to_contain_text("switched off")
            expect(state).to_contain_text("lakemark.optimize.enabled")
