"""Ten thousand tables: pages are as long and as fast as what they show."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, TableEntry
from lakemark_proto.v1 import catalog_pb2
from lakemark_server.catalog import lake, tables
from lakemark_server.kv import Transaction
from lakemark_server.process import Service
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Site
from tests.web_lake import SCHEMA, WebLake

TABLES = 10_000
AT_ONCE = 500


def make_many(service: Service) -> None:
    """Without directories, which no page looks at."""
    made = WebLake(service)
    made.database("many")
    database = service.catalog.get_database("hive", "many")
    template = made.table("template", "many").record

    def put(tx: Transaction, first: int) -> None:
        for number in range(first, first + AT_ONCE):
            record = LakeTableRecord()
            record.CopyFrom(template)
            record.table_id, record.name = 1_000_000 + number, f"table_{number:05}"
            entry = TableEntry(table_id=record.table_id, kind=catalog_pb2.LAKE, hive_type="VIRTUAL_VIEW")
            tables.put(tx, database.database_id, record.name, entry)
            lake.put(tx, record)
            lake.put_schema(tx, record.table_id, SCHEMA)

    for first in range(0, TABLES, AT_ONCE):
        service.store.transact(lambda tx, first=first: put(tx, first))  # type: ignore[misc]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_service(Path(tmp_path_factory.mktemp("many")), **SETTINGS) as service:
        make_many(service)
        yield Site(service)


def names_on(page: str) -> list[str]:
    return re.findall(r">many\.(\w+)</a>", page.partition('id="rows"')[2])


def test_pages_have_all_tables_in_order_once(site: Site) -> None:
    path, seen = "/", list[str]()
    for _ in range(4):
        answer = site.get(path)
        assert len(answer.text) < 100_000
        seen += names_on(answer.text)
        following = re.search(r'rel="next" href="([^"]+)"', answer.text)
        assert following
        path = following[1].replace("&amp;", "&")
    assert seen == [f"table_{number:05}" for number in range(200)]


def test_a_search_finds_what_is_far_behind(site: Site) -> None:
    answer = site.get("/?q=le_0998")
    assert names_on(answer.text) == [f"table_0998{digit}" for digit in range(10)]
    assert 'rel="next"' not in answer.text


def test_the_survey_goes_on_while_pages_are_answered(site: Site) -> None:
    def looked_at() -> int:
        told = re.search(r"([\d,]+) of [\d,]+ tables have been looked at", site.get("/").text)
        return int(told[1].replace(",", "")) if told else TABLES

    first = looked_at()
    deadline = time.monotonic() + 60
    while looked_at() <= first < TABLES:
        assert time.monotonic() < deadline
        time.sleep(0.05)
