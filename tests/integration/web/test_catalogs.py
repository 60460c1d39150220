"""Several catalogs, and databases that are mounted from elsewhere."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1.mounts_pb2 import Mount
from lakemark_proto.v1.timeline_pb2 import APPEND
from lakemark_server.process import Service
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_web import survey as surveys
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Site
from tests.integration.web.test_pages import surveyed, text_of
from tests.web_lake import ATTACK, SCHEMA

OTHER = "other"
TABLES = 4


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_service(tmp_path, client_catalogs=True, **SETTINGS) as service:
        for catalog in ("hive", OTHER):
            service.catalog.create_database(DatabaseRecord(catalog=catalog, name="sales"))
            for number in range(TABLES):
                add(service, catalog, f"t{number}")
        yield Site(service)


def add(service: Service, catalog: str, name: str) -> None:
    record = LakeTableRecord(catalog=catalog, database="sales", name=name)
    service.catalog.create_lake_table(record, SCHEMA)


def survey_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "web survey"]


def test_one_thread_looks_at_all_catalogs(site: Site) -> None:
    assert survey_threads() == []
    for catalog in ("hive", OTHER):
        text = surveyed(site, f"/?catalog={catalog}")
        assert f"Tables of {catalog}" in text
        assert text.count("100 good") == TABLES
    assert len(survey_threads()) == 1


def test_what_nobody_looks_at_ends_and_begins_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "_WAIT_S", 0.01)
    monkeypatch.setattr(surveys, "IDLE_S", 0.2)
    monkeypatch.setattr(surveys, "TABLES_MAX", TABLES + 1)
    surveyed(site)
    for thread in survey_threads():
        thread.join(30)
    assert survey_threads() == []
    add(site.service, "hive", "z_late")
    assert surveyed(site).count("100 good") == TABLES + 1
    assert len(survey_threads()) <= 1


def test_the_tables_of_all_catalogs_together_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "TABLES_MAX", TABLES + 1)
    assert "There are more tables" not in surveyed(site)
    text = surveyed(site, f"/?catalog={OTHER}")
    assert "There are more tables than this page looks at" in text
    assert (text.count("100 good"), text.count("not looked at yet")) == (1, TABLES - 1)


def test_a_catalog_that_nobody_looks_at_makes_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "_WAIT_S", 0.01)
    monkeypatch.setattr(surveys, "TABLES_MAX", TABLES + 1)
    monkeypatch.setattr(surveys, "IDLE_S", 0.2)
    surveyed(site)
    for thread in survey_threads():
        thread.join(30)
    monkeypatch.setattr(surveys, "IDLE_S", 600.0)
    monkeypatch.setattr(surveys.CatalogSurvey, "is_wanted", property(lambda one: one.catalog == OTHER))
    assert surveyed(site, f"/?catalog={OTHER}").count("100 good") == TABLES


def test_links_stay_in_their_catalog(site: Site) -> None:
    """Of every page that can be reached from the overview of another catalog."""
    site.service.timeline.open(table_id(site.service), OpenJob(operation=APPEND, heartbeat_timeout_ms=1))
    surveyed(site, f"/?catalog={OTHER}")
    waiting, seen = [f"/?catalog={OTHER}"], set[str]()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        answer = site.get(path)
        assert answer.status == 200, (path, answer.text)
        for found in re.findall(r' href="(/[^"#]*)', answer.text):
            link = html.unescape(found)
            if link.startswith("/static/") or link in seen:
                continue
            assert f"catalog={OTHER}" in link or link.startswith(f"/tables/{OTHER}/"), (path, link)
            waiting.append(link)
    assert len(seen) > 10


def table_id(service: Service) -> int:
    return service.catalog.get_lake_table(OTHER, "sales", "t0").table_id


def test_mounted_databases_are_shown_as_elsewhere(site: Site) -> None:
    uri = "thrift://metastore.example:9083"
    site.service.mounts.create(Mount(name="old", uri=uri, database="warehouse", owner=ATTACK))
    text = text_of(site.get("/").text)
    assert "their tables are elsewhere and are not listed here." in text
    assert f"Database Name there Metastore old warehouse {uri}" in text
    for page in ("", "/files", "/timeline", "/optimizing", "/action?action=pause"):
        answer = site.get(f"/tables/hive/old/orders{page}")
        assert answer.status == 200
        assert "The database old is mounted from another Metastore" in text_of(answer.text)
        assert "<script>" not in answer.text
    for page in ("", "/history"):
        answer = site.get(f"/api/tables/hive/old/orders/optimization{page}")
        assert (answer.status, json.loads(answer.text)["error"]["code"]) == (404, "not_found")
        assert uri in answer.text
    assert "Databases of other Metastores" not in site.get(f"/?catalog={OTHER}").text
    assert site.get("/tables/hive/older/orders").status == 404
