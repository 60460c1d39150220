"""Each page over HTTP: what it says of a lake with a history, and what it answers to what makes no sense."""

from __future__ import annotations

import html
import re
import time
import urllib.request

import pytest

from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_tables import TableDefinition
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Site
from tests.web_lake import ATTACK, DAY, WebLake

ORDERS = "/tables/hive/sales/orders"
PAGES = (
    *("/", "/?sort=health", "/?sort=size", "/?sort=commit", "/?q=ord", "/events", "/events?kind=commits&only=sales.*"),
    *("/service", ORDERS, f"{ORDERS}?version=1", f"{ORDERS}?tag=audited", f"{ORDERS}?branch=dev", f"{ORDERS}/files"),
    *(f"{ORDERS}/files?sort=avoidable&branch=dev", f"{ORDERS}/files?partition=day%3D{DAY}", f"{ORDERS}/timeline"),
    *(
        f"{ORDERS}/timeline?before=99999999999999",
        f"{ORDERS}/references",
        f"{ORDERS}/conflicts",
        f"{ORDERS}/optimizing",
        "/optimizer",
    ),
    *(f"{ORDERS}/action?action=restore&version=1", "/tables/hive/sales/hostile", "/tables/hive/sales/hostile/files"),
    *("/tables/hive/sales/hostile/timeline", "/tables/hive/sales/hostile/conflicts", "/tables/hive/sales/clicks"),
)


def text_of(page: str) -> str:
    """What a reader sees, without markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def shown(site: Site, path: str) -> str:
    answer = site.get(path)
    assert answer.status == 200, answer.text
    return text_of(answer.text)


def surveyed(site: Site, path: str = "/") -> str:
    """The overview, once all tables have been looked at."""
    for _ in range(200):
        text = shown(site, path)
        if "have been looked at" not in text:
            return text
        time.sleep(0.05)
    raise AssertionError(text)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_and_lets_no_text_become_markup(site: Site, path: str) -> None:
    answer = site.get(path)
    assert answer.status == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert float(answer.headers["server-timing"].partition("dur=")[2]) > 0
    assert re.findall(r"<script(?! src=\"/static/)|style=|\son\w+=", re.sub(r"&[#\w]+;[^<]*", "", answer.text)) == []


def test_the_overview_tells_sizes_commits_by_whom_and_what_needs_a_person(site: Site) -> None:
    text = surveyed(site)
    assert "sales.orders 100 good 506 MB 6 2 0 3" in text
    assert re.search(r"sales.clicks \d+ poor 600 kB 30 30 0 3", text)
    assert "1 table suffers from small or delta files: sales.clicks" in text
    assert "1 writer has gone silent with an open instant" in text
    assert "1 instant rolled back in the last hour" in text
    assert "1 writer refused at the start in the last hour" in text
    assert "etl 3" in text
    assert "collector 3" in text
    assert "sales.orders 4" in text


def test_tables_are_sorted_and_found_by_name(site: Site) -> None:
    surveyed(site)
    names = re.findall(r"sales\.\w+</a></th>", site.get("/?sort=health").text)
    assert names[-3:][0] == "sales.clicks</a></th>"
    found = re.findall(r">(sales\.\w+)</a></th>\s*<td data-name=\"Health", site.get("/?q=ERS").text)
    assert found == ["sales.orders"]
    assert "No table on this page has such a name" in shown(site, "/?q=nothing")


def test_the_table_shows_its_definition_and_what_was_refused_and_why(site: Site) -> None:
    text = shown(site, ORDERS)
    assert "Conflict policy partition" in text
    assert "crashed" in text
    assert "silent: heard" in text
    assert "late job" in text
    assert "committed version 3 (APPEND) in partition day=2026-11-22 (policy 'partition')" in text
    assert ATTACK in html.unescape(site.get(ORDERS).text)


def test_a_table_as_it_was(site: Site) -> None:
    first = shown(site, f"{ORDERS}?version=1")
    assert "You see the table at version 1" in first
    assert "Size 231 MB" in first
    assert "Size 357 MB" in shown(site, f"{ORDERS}?tag=audited")
    assert "Size 461 MB" in shown(site, f"{ORDERS}?branch=dev")
    created = site.service.catalog.get_lake_table("hive", "sales", "orders").record.created_ms
    assert "Size 0 B" in shown(site, f"{ORDERS}?time={created}")


def test_files_by_partition_and_the_slices_of_one(site: Site) -> None:
    text = shown(site, f"{ORDERS}/files?sort=avoidable")
    assert text.index("day=2026-11-22") < text.index("day=2026-11-20")
    one = shown(site, f"{ORDERS}/files?partition=day%3D{DAY}")
    assert "3 files, 149 MB, 30 rows at version 3; 2 small" in one
    assert one.count("/a.parquet base") == 3
    assert "day=2026-11-20" in shown(site, f"{ORDERS}/files?version=2")


def test_the_timeline_has_a_picture_and_says_the_same_in_words(site: Site) -> None:
    page = site.get(f"{ORDERS}/timeline").text
    assert page.count("<title>") == 1 + 7
    assert len(re.findall(r'<tr id="i\d+">', page)) == 7
    text = text_of(page)
    assert "job nightly" in text
    assert "Refused: commit to sales.orders refused" in text


def test_early_refusals_are_told_with_their_reason(site: Site) -> None:
    for path in (f"{ORDERS}/conflicts", "/events"):
        text = shown(site, path)
        assert "eager commit to sales.orders refused: instant" in text
        assert "is in flight (OVERWRITE_PARTITIONS)" in text
    assert "eager" not in shown(site, "/tables/hive/sales/clicks/conflicts")


def test_events_are_filtered_and_paged(site: Site) -> None:
    commits = shown(site, "/events?kind=commits")
    assert "version 3 on dev: append, 1 file with 10 rows added" in commits
    assert "table created" not in commits
    assert "collector" not in shown(site, "/events?kind=commits&only=sales.orders")
    before = shown(site, "/events?before=3")
    assert "2 " in before
    assert "version" not in before.partition("Writers refused")[0].replace("read version", "")


def test_the_service_page_has_silent_writers_first(site: Site) -> None:
    text = shown(site, "/service")
    assert text.index("lost heartbeat") < text.index("inflight")
    assert "gRPC 127.0.0.1:" in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nowhere", 404, "there is no page"),
        ("/tables/hive/sales/missing", 404, "there is no table sales.missing"),
        ("/tables/hive/sales/missing/files", 404, "there is no table"),
        (f"/tables/hive/sales/{'x' * 3000}", 404, "there is no table"),
        ("/?catalog=other", 404, "there is no catalog"),
        ("/events?catalog=other", 404, "there is no catalog"),
        ("/events?only=a.b.c", 400, "no pattern of names"),
        ("/events?before=x", 400, "no number"),
        ("/?sort=size&offset=-1", 400, "no number"),
        (f"{ORDERS}?version=99", 404, "has no version 99"),
        (f"{ORDERS}?version=1&time=2026-11-22", 400, "one of them"),
        (f"{ORDERS}?time=yesterday", 400, "no time"),
        (f"{ORDERS}?branch={'b' * 500}", 404, "no branch"),
        (f"{ORDERS}/files?partition=day%3D1999", 404, "no files in partition"),
        (f"{ORDERS}/action?action=drop", 400, "there is no action"),
        ("/static/../app.py", 404, "there is no page"),
        ("/live?only=...", 400, "no pattern of names"),
    ],
)
def test_what_makes_no_sense_is_told_in_words(site: Site, path: str, status: int, said: str) -> None:
    answer = site.get(path)
    assert (answer.status, said in text_of(answer.text)) == (status, True), answer.text


def test_a_warehouse_table_has_no_versions(lake: WebLake, site: Site) -> None:
    database = lake.service.catalog.get_database("hive", "sales")
    definition = TableDefinition("old", b"", "MANAGED_TABLE", f"{database.location}/old", True, [("day", "string")])
    Warehouse(lake.service.catalog).tables.create(database, definition)
    assert "Partition columns day string" in shown(site, "/tables/hive/sales/old")
    assert site.get("/tables/hive/sales/old/files").status == 409


def test_pages_are_small_and_compressed(site: Site) -> None:
    sizes = []
    for path in ("/", "/static/style.css", "/static/page.js"):
        request = urllib.request.Request(site.url + path, headers={"accept-encoding": "gzip"})  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            sizes.append(len(response.read()))
            assert response.headers["content-encoding"] == "gzip"
    assert sum(sizes) < 40_000


def test_a_service_without_the_page(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_service(tmp_path_factory.mktemp("none"), **{**SETTINGS, "web_enabled": False}) as service:
        assert service.web_url == ""


def test_two_services_that_say_nothing_get_two_ports(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        running_service(tmp_path_factory.mktemp("one"), **{**SETTINGS, "web_port": None}) as service,
        running_service(tmp_path_factory.mktemp("two"), **{**SETTINGS, "web_port": None}) as other,
    ):
        assert service.web_url != other.web_url
        assert Site(other).get("/").status == 200
