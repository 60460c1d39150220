"""The cost of a clean depends on what ends and not on what stays, and only one process cleans at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakemark_core.errors import DeadlineExceeded
from lakemark_core.storage import directories
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.context.deadline import Deadline, within
from lakemark_server.file_index.parts.fold import Origin, Snapshot
from lakemark_server.maintenance.cleaning.cleaner import Retention
from lakemark_server.maintenance.cleaning.old_metadata import BASE_AGE_MS_MIN
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.versions.loader import Loading
from lakemark_server.store.keyspace import MAIN, VERSIONS
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.verify import verify
from tests.contract.test_cleaning_model import fold, keys, write
from tests.lakes import Lake, file, open_lake


def test_merges_that_have_nothing_to_do_with_what_ends_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(tmp_path) as lake:
        table, references = lake.table(), lake.timeline.references
        (first,) = write(lake, "t", t.APPEND, 1)
        write(lake, "t", t.OVERWRITE_TABLE, 1)
        references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH))
        for number in range(4):
            job = OpenJob(operation=t.APPEND, branch="dev", profile=t.WorkProfile())
            instant = lake.timeline.open(table.table_id, job).record.instant
            lake.commit(table, instant, [file(instant, f"g{number}", 2)])
            references.merge(table, MergeDraft(branch="dev", into="main"))
        loaded: set[tuple[str, int]] = set()
        load = Loading.load

        def noted(self: Loading, lineage: Lineage, version: int, origin: Origin | None = None) -> Snapshot:
            loaded.add((lineage.key, version))
            return load(self, lineage, version, origin)

        monkeypatch.setattr(Loading, "load", noted)
        done = lake.cleaner.clean(table, Retention(versions=5))
        assert (done.files, first.exists()) == (1, False)
        assert {version for key, version in loaded if key == MAIN} == {1, 2, 6}


def test_a_second_clean_waits_for_the_first_as_long_as_its_client_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        for _ in range(3):
            write(lake, "t", t.OVERWRITE_TABLE, 1)
        retain = Retention(versions=1)
        second: list[Exception] = []
        delete = directories.delete_directory

        def other() -> None:
            try:
                with within(Deadline(time.monotonic() + 0.05)):
                    lake.cleaner.clean(table, retain)
            except DeadlineExceeded as error:
                second.append(error)

        def meanwhile(location: str, *more: Any) -> None:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            delete(location, *more)

        monkeypatch.setattr(directories, "delete_directory", meanwhile)
        assert lake.cleaner.clean(table, retain).files == 2
        assert len(second) == 2
        assert lake.cleaner.clean(table, retain).files == 0


def test_a_table_that_always_has_a_young_base_is_trimmed(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        for _ in range(4):
            for _ in range(3):
                write(lake, "t", t.OVERWRITE_TABLE, 1)
            fold(lake)
            lake.clock.advance(-BASE_AGE_MS_MIN // 2)
        lake.cleaner.clean(table, Retention(versions=1))
        # The last base has stood for half the required time, the base of version 9 for all of it.
        assert [version for *_, version in keys(lake, VERSIONS, table.table_id)] == [9, 10, 11, 12]


def test_a_base_forgets_files_of_versions_that_nobody_can_read(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()

        def dead() -> int:
            """How many dead entries the standing base has."""
            base = lake.store.read(lambda tx: bases.read_record(tx, table.table_id, MAIN))
            assert base is not None
            index = lake.store.read(lambda tx: bases.read_index(tx, table.table_id, base.base_id))
            assert index is not None
            return sum(page.entries for part in index.parts if part.dead for page in part.pages)

        for _ in range(8):
            write(lake, "t", t.OVERWRITE_TABLE, 1)
        lake.timeline.savepoints.create(table, 4)
        kept = lake.paths(table, 4)
        fold(lake)
        assert dead() == 7
        lake.cleaner.clean(table, Retention(versions=2))
        for _ in range(4):
            write(lake, "t", t.OVERWRITE_TABLE, 1)
        fold(lake)
        assert dead() == 6, "of versions 4 and 7 to 11"
        assert Lake(lake.store, tmp_path, lake.clock).paths(table, 4) == kept
        lake.timeline.savepoints.drop(table, 4)
        lake.cleaner.clean(table, Retention(versions=1))
        write(lake, "t", t.OVERWRITE_TABLE, 1)
        fold(lake)
        assert dead() == 1, "the part of those before is not even read"
        assert verify(lake.store) == []
