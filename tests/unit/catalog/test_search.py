"""Finding tables by a part of their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog import search
from lakemark_server.catalog.search import BEGINNING, TablePlace
from tests.lakes import FLAT, Lake, LakeTableRecord, open_lake


def made(lake: Lake) -> list[str]:
    names = []
    for database in ("b", "a", "empty"):
        lake.catalog.create_database(DatabaseRecord(name=database))
        for number in range(0 if database == "empty" else 5):
            lake.catalog.create_lake_table(LakeTableRecord(database=database, name=f"t{number}"), FLAT)
            names.append(f"{database}.t{number}")
    return sorted(names)


def paged(lake: Lake, text: str, limit: int) -> list[str]:
    names, after = [], BEGINNING
    for _ in range(100):
        page = lake.catalog.find_tables("hive", text, after, limit=limit)
        names += [".".join(place) for place, _ in page.tables]
        if page.behind is None:
            return names
        after = page.behind
    raise AssertionError("it never ends")


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 10, 11])
def test_pages_have_all_tables_in_order_once(tmp_path: Path, limit: int) -> None:
    with open_lake(tmp_path) as lake:
        names = made(lake)
        assert paged(lake, "", limit) == names
        assert paged(lake, "T3", limit) == ["a.t3", "b.t3"]
        assert paged(lake, "b.t", limit) == names[5:]
        assert paged(lake, "none", limit) == []


def test_a_search_ends_after_so_many_names_and_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LOOKED_AT_MAX", 3)
    with open_lake(tmp_path) as lake:
        made(lake)
        first = lake.catalog.find_tables("hive", "t4", limit=10)
        assert first == search.TableMatches([], TablePlace("a", "t2"))
        assert paged(lake, "t4", 10) == ["a.t4", "b.t4"]


def test_it_goes_on_behind_a_database_that_was_dropped(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        made(lake)
        page = lake.catalog.find_tables("hive", "", TablePlace("aa", "t1"), limit=1)
        assert page.tables[0][0] == ("b", "t0")
