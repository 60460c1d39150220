"""The page in a real browser, as an operator uses it. ``LAKEMARK_PICTURES=docs/pictures`` makes the pictures anew."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.browser import BrowserMissing, serious_findings
from playwright.sync_api import Browser, Page, expect

from tests.integration.grpc_server import connected, running_service
from tests.integration.web.browsing import PHONE, visit
from tests.integration.web.conftest import SETTINGS, Site
from tests.integration.web.test_optimizer_pages import Gated, fragmented, working
from tests.web_lake import DAY, MEGA, WebLake, fill

ORDERS = "/tables/hive/sales/orders"
PAGES = {
    "overview": "/",
    "table": ORDERS,
    "past": f"{ORDERS}?version=1",
    "files": f"{ORDERS}/files",
    "partition": f"{ORDERS}/files?partition=day%3D{DAY}",
    "timeline": f"{ORDERS}/timeline",
    "references": f"{ORDERS}/references",
    "conflicts": f"{ORDERS}/conflicts",
    "optimizing": f"{ORDERS}/optimizing",
    "confirm": f"{ORDERS}/action?action=restore&version=1",
    "events": "/events",
    "optimizer": "/optimizer",
    "service": "/service",
    "hostile": "/tables/hive/sales/hostile",
    "hostile-files": "/tables/hive/sales/hostile/files",
    "missing": "/tables/hive/sales/missing",
}
PICTURES = {"overview": "light", "table": "light", "timeline": "light", "files": "dark", "conflicts": "light"}
FOLLOWED = "optimizing"
"""The picture of a run that goes on."""

PICTURE_BYTES_MAX = 150_000


def take_picture(page: Page, name: str, directory: Path) -> None:
    chosen = os.environ.get("LAKEMARK_PICTURES")
    place = (Path(chosen) if chosen else directory) / f"{name}.png"
    page.screenshot(path=place, animations="disabled")
    assert 5_000 < place.stat().st_size < PICTURE_BYTES_MAX


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious_and_nothing_goes_wrong(browser: Browser, site: Site, name: str, scheme: str) -> None:
    # The test's own script is let in; that of the page is not changed by it.
    with visit(browser, site, color_scheme=scheme, bypass_csp=True) as visited:
        page = visited.go(PAGES[name])
        try:
            assert serious_findings(page) == []
        except BrowserMissing as missing:
            pytest.skip(str(missing))


@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_a_phone(browser: Browser, site: Site, name: str) -> None:
    with visit(browser, site, PHONE) as visited:
        page = visited.go(PAGES[name])
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_a_visitor_without_scripts_sees_the_same(browser: Browser, site: Site) -> None:
    with visit(browser, site, java_script_enabled=False) as visited:
        page = visited.go("/?sort=health")
        expect(page.get_by_role("heading", name="What needs a person")).to_be_visible()
        page.get_by_role("searchbox").fill("orders")
        page.get_by_role("button", name="Show").click()
        page.locator("#rows").get_by_role("link", name="sales.orders").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("sales.orders")


def test_a_stranger_finds_the_small_files_the_commits_and_the_refusal(browser: Browser, site: Site) -> None:
    with visit(browser, site) as visited:
        page = visited.go("/")
        page.get_by_role("link", name=re.compile("suffers? from small")).click()
        page.locator("#rows").get_by_role("link", name="sales.clicks").click()
        expect(page.get_by_text("30 of 30 files are small; merging them would save 29 files")).to_be_visible()
        page.get_by_role("link", name="Tables").click()
        recent = page.get_by_role("region", name="Committed in the last hour")
        expect(recent.get_by_role("row", name="collector")).to_contain_text("3")
        page.locator("#rows").get_by_role("link", name="sales.orders").click()
        page.get_by_role("link", name="Conflicts").click()
        expect(page.get_by_text("Refused: commit to sales.orders refused")).to_be_visible()


def test_a_stranger_sees_the_table_as_it_was(browser: Browser, site: Site) -> None:
    with visit(browser, site) as visited:
        page = visited.go(ORDERS)
        page.get_by_label("Version", exact=True).fill("1")
        page.get_by_role("button", name="Show the table then").click()
        expect(page.get_by_text("You see the table at version 1")).to_be_visible()
        expect(page.locator("#facts")).to_contain_text("231 MB")
        page.get_by_role("link", name="Files").click()
        expect(page.get_by_role("row", name="day=2026-11-20")).to_be_visible()
        expect(page.get_by_text("day=2026-11-22")).to_have_count(0)


def test_the_keyboard_is_enough(browser: Browser, site: Site) -> None:
    with visit(browser, site) as visited:
        page = visited.go("/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_role("searchbox").focus()
        page.keyboard.type("orders")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=orders**")
        page.locator("#rows").get_by_role("link", name="sales.orders").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("sales.orders")


def test_a_commit_is_seen_without_loading_the_page_again(browser: Browser, site: Site, lake: WebLake) -> None:
    table = lake.table("watched")
    with visit(browser, site) as visited:
        page = visited.go("/tables/hive/sales/watched")
        expect(page.locator("#live")).to_have_text("live")
        expect(page.get_by_text("Nothing is committed yet.")).to_be_visible()
        page.evaluate("window.stayed = true")
        lake.put(table, [MEGA], owner="<b>writer</b>")
        expect(page.locator("#versions")).to_contain_text("<b>writer</b>", timeout=10_000)
        expect(page.locator("#facts")).to_contain_text("1.05 MB")
        assert page.evaluate("window.stayed")


def test_a_run_of_the_optimizer_is_asked_for_and_followed_live(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark_optimizer.worker.socket.gethostname", lambda: "worker-1")  # for the picture
    settings = SETTINGS | {"optimizer": True, "optimizer_interval_s": 0.05}
    with running_service(tmp_path, **settings) as service, connected(service) as client:
        fragmented(client, commits=3)
        executor = Gated(client)
        with working(client, executor), visit(browser, Site(service)) as visited:
            page = visited.go("/tables/hive/default/t/optimizing")
            expect(page.locator("#state")).to_contain_text("3 fragments of 4 needed")
            page.get_by_role("button", name="Run now …").click()
            page.get_by_role("button", name="Run now", exact=True).click()
            expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
            page.evaluate("window.stayed = true")
            tasks = page.get_by_role("region", name="Tasks that wait or run")
            expect(tasks.get_by_text("running")).to_have_count(2, timeout=15_000)
            take_picture(page, FOLLOWED, tmp_path)
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
            executor.gate.set()
            runs = page.get_by_role("region", name="Runs, newest first")
            expect(runs.get_by_text("3 → 1")).to_have_count(2, timeout=15_000)
            expect(page.get_by_text("No run is planned or goes on.")).to_be_visible()
            assert page.evaluate("window.stayed")


def test_a_rollback_asks_first_and_is_shown(browser: Browser, site: Site, lake: WebLake) -> None:
    table = lake.table("stuck")
    lake.open(table, owner="stuck job")
    with visit(browser, site) as visited:
        page = visited.go("/tables/hive/sales/stuck/timeline")
        page.get_by_role("link", name="Roll back …").click()
        expect(page.get_by_text("it cannot commit any more")).to_be_visible()
        page.get_by_role("button", name="Roll back").click()
        expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
        expect(page.get_by_role("row", name="stuck job")).to_contain_text("rolled back by an operator on the web page")


def test_another_site_cannot_act(browser: Browser, site: Site, lake: WebLake) -> None:
    """With the operator's own cookie in the browser, and a token that was found out somehow."""
    table = lake.table("target")
    lake.put(table, [MEGA])
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{site.url}/tables/hive/sales/target/action?action=restore&version=1")
        fields = {
            field.get_attribute("name"): field.get_attribute("value")
            for field in page.locator("form[method=post] input[type=hidden]").all()
        }
        inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
        form = f'<form method="post" action="{site.url}/tables/hive/sales/target/action">{inputs}</form>'
        context.route(
            "http://evil.example/", lambda route: route.fulfill(content_type="text/html", body=f"<body>{form}</body>")
        )
        page.goto("http://evil.example/")
        with page.expect_navigation() as navigation:
            page.evaluate("document.forms[0].submit()")
        assert navigation.value
        assert navigation.value.status == 403
    finally:
        context.close()
    assert len(lake.service.timeline.versions(table.table_id, "")[0]) == 1


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Without attacks, and with tables that nothing is the matter with."""
    with running_service(tmp_path_factory.mktemp("pictured"), **SETTINGS) as service:
        lake = fill(service, attack="ann")
        for name in ("customers", "invoices", "returns"):
            lake.put(lake.table(name), [120 * MEGA] * 3, owner="billing")
        yield Site(service)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(browser: Browser, pictured: Site, name: str, tmp_path: Path) -> None:
    with visit(browser, pictured, color_scheme=PICTURES[name]) as visited:
        page = visited.go(PAGES[name])
        page.wait_for_function("document.body.dataset.again !== '1'")
        expect(page.locator("#live")).to_have_text("live")
        take_picture(page, name, tmp_path)


def test_the_pictures_of_the_docs_are_there() -> None:
    page = (Path(__file__).parents[3] / "docs" / "web.md").read_text()
    assert set(re.findall(r"pictures/([\w-]+)\.png", page)) == {*PICTURES, FOLLOWED}


def test_a_page_that_was_not_let_in_among_those_that_are_told_tries_again(browser: Browser, tmp_path: Path) -> None:
    with running_service(tmp_path, web_connections_max=8, **SETTINGS) as service, ExitStack() as streams:
        site = Site(service)
        assert site.get("/").status == 200
        for _ in range(4):
            sock = streams.enter_context(socket.create_connection(site.host.split(":"), 30, ("127.0.0.2", 0)))
            sock.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        with visit(browser, site) as visited:
            visited.allow("status of 503")
            visited.page.clock.install()
            page = visited.go("/")
            expect(page.locator("#live")).to_have_text("not live; trying again")
            streams.close()
            with page.expect_response(lambda response: "/live" in response.url and response.status == 200):
                page.clock.fast_forward(31_000)
