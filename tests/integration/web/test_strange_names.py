"""Texts of users that turn a line around, break it, or never end; and pages that few see, in a browser."""

from __future__ import annotations

import html
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from benchmarks.browser import BrowserMissing, serious_findings
from playwright.sync_api import Browser, expect

from lakemark_proto.v1.mounts_pb2 import Mount
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_tables import TableDefinition
from tests.integration.grpc_server import running_service
from tests.integration.web.browsing import PHONE, WIDE, visit
from tests.integration.web.conftest import SETTINGS, Site
from tests.integration.web.test_optimizer_pages import act
from tests.web_lake import ATTACK, STRANGE, fill, strange

TABLE = "/tables/hive/sales/strange"
PAGES = {
    "overview": "/?sort=health",
    "events": "/events",
    "service": "/service",
    "table": TABLE,
    "files": f"{TABLE}/files",
    "partition": f"{TABLE}/files?partition=PARTITION",
    "timeline": f"{TABLE}/timeline",
    "references": f"{TABLE}/references",
    "conflicts": f"{TABLE}/conflicts",
    "optimizing": f"{TABLE}/optimizing",
    "hold": f"{TABLE}/action?action=hold&minutes=5&partition=PARTITION&why=WHY",
    "move": f"{TABLE}/action?action=move&group=etl",
    "optimizer": "/optimizer?done=yes",
    "group": "/optimizer/action?action=change&group=etl&order=fifo&minutes=10",
    "mounted": "/tables/hive/old/orders",
    "warehouse": "/tables/hive/sales/hive_table",
    "search": "/?q=WHY",
    "error": "/events?only=WHY",
}


@pytest.fixture(scope="module")
def strange_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    with running_service(tmp_path_factory.mktemp("strange"), **SETTINGS) as service:
        lake = fill(service)
        partition = strange(lake)
        service.mounts.create(Mount(name="old", uri="thrift://metastore.example:9083", owner=ATTACK + STRANGE))
        database = service.catalog.get_database("hive", "sales")
        place = f"{database.location}/hive_table"
        definition = TableDefinition("hive_table", b"", "MANAGED_TABLE", place, True, [("day", "string")])
        Warehouse(service.catalog).tables.create(database, definition)
        texts = {"PARTITION": partition, "WHY": STRANGE[:400]}
        assert act(Site(service), "/optimizer", "action=pause&group=etl").status == 303
        yield Site(service), texts


def path_of(name: str, texts: dict[str, str]) -> str:
    path = PAGES[name]
    for key, text in texts.items():
        path = path.replace(key, quote(text, safe=""))
    return path


@pytest.mark.parametrize("name", PAGES)
def test_strange_texts_stay_texts_and_nothing_turns_a_line_around(
    strange_site: tuple[Site, dict[str, str]], name: str
) -> None:
    site, texts = strange_site
    answer = site.get(path_of(name, texts))
    assert answer.status == (400 if name == "error" else 200), answer.text
    assert "<script>alert" not in answer.text
    shown = answer.text
    for text in texts.values():
        shown = shown.replace(f'value="{html.escape(text)}"', "").replace(f'value="{html_escaped(text)}"', "")
    assert "\u202e" not in shown
    assert "\u200b" not in shown
    if name in ("table", "partition", "timeline", "conflicts", "events", "hold"):
        assert "‹U+202E›evil‹U+200B›" in answer.text


def html_escaped(text: str) -> str:
    """As Jinja does it."""
    return html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_with_strange_texts_fit_a_phone_and_are_accessible(
    browser: Browser, strange_site: tuple[Site, dict[str, str]], name: str, scheme: str
) -> None:
    site, texts = strange_site
    size = PHONE if scheme == "light" else WIDE
    with visit(browser, site, size, color_scheme=scheme, bypass_csp=True) as visited:
        if name == "error":
            visited.allow("status of 400")
        page = visited.go(path_of(name, texts))
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        try:
            assert serious_findings(page) == []
        except BrowserMissing as missing:
            pytest.skip(str(missing))


def test_a_partition_with_a_strange_name_is_held_and_released(
    browser: Browser, strange_site: tuple[Site, dict[str, str]]
) -> None:
    """The form has the name as it is, whatever the page shows."""
    site, texts = strange_site
    with visit(browser, site) as visited:
        page = visited.go(path_of("hold", texts))
        page.get_by_role("button", name="Hold").click()
        expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
        table = site.service.catalog.get_lake_table("hive", "sales", "strange")
        assert [one.partition for one in site.service.optimization.explain(table).holds] == [texts["PARTITION"]]
        page.get_by_role("link", name="Release …").click()
        page.get_by_role("button", name="Release").click()
        expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
        assert list(site.service.optimization.explain(table).holds) == []


def test_a_group_is_paused_by_the_keyboard(browser: Browser, strange_site: tuple[Site, dict[str, str]]) -> None:
    site, _ = strange_site
    with visit(browser, site) as visited:
        page = visited.go("/optimizer")
        page.get_by_role("link", name="Resume group etl …").focus()
        page.keyboard.press("Enter")
        button = page.get_by_role("button", name="Resume")
        expect(button).to_be_visible()
        button.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
        expect(page.get_by_role("link", name="Pause group etl …")).to_be_visible()
