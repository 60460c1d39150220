"""delta-rs as a peer: a table of JSON commits, one for each append, with a checkpoint that delta-rs writes at the end.

The commits before the checkpoint are removed, as Delta does after its retention. "Loaded" is a ``DeltaTable`` that is
kept: it has the files of its version in memory.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from benchmarks.dataset import APPENDS, COLUMNS, FILE_ROWS, PARTITION_COLUMN, Dataset
from benchmarks.peers.timer import APPEND_RUNS, APPENDED_FILES, Work, hot_commits, main, milliseconds, seconds

RUNS: Final = 5
_TYPES: Final = {
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "double": pa.float64(),
    "int": pa.int32(),
    "string": pa.string(),
}
_SCHEMA: Final = Schema.from_arrow(
    pa.schema([*((name, _TYPES[kind]) for name, kind in COLUMNS), (PARTITION_COLUMN, pa.int32())])
)
_NO_CHECKPOINT: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def plan(work: Work) -> dict[str, Any]:
    dataset = Dataset(work.files, work.partitions)
    place = str(work.generated("delta", dataset, _generate))

    def planned(table: DeltaTable) -> None:
        count = len(table.file_uris(file_pruning_predicate=dataset.selection.sql))
        assert count == dataset.selected_files, count

    cold_ms = milliseconds(lambda: planned(DeltaTable(place)), 1)
    loaded = DeltaTable(place)
    selective_ms = milliseconds(lambda: planned(loaded), RUNS)

    def listed() -> None:
        assert pa.table(loaded.get_add_actions(flatten=True)).num_rows == dataset.files

    def paths_listed() -> None:
        assert len(loaded.file_uris()) == dataset.files

    return {
        "selective_cold_ms": cold_ms,
        "selective_loaded_ms": selective_ms,
        "full_listing_s": round(seconds(listed), 3),
        "paths_listing_s": round(seconds(paths_listed), 3),
    }


def commit(work: Work) -> dict[str, Any]:
    dataset = Dataset(work.files, work.partitions)
    place = work.generated("delta", dataset, _generate)
    with work.scratch() as scratch:
        shutil.copytree(place / "_delta_log", scratch / "_delta_log")
        table = DeltaTable(str(scratch))
        took = []
        for number in range(APPEND_RUNS):
            actions = _actions(dataset.later(number, APPENDED_FILES))
            took.append(seconds(lambda: _append(table, actions)))  # noqa: B023 - called at once
            table.update_incremental()
        hot = _hot(scratch / "hot", dataset)
    return {"append_ms": round(statistics.median(took) * 1e3, 3), "hot": hot}


def _hot(place: Path, dataset: Dataset) -> dict[str, float]:
    place.mkdir()
    _create(place)
    actions = _actions(dataset.later(0, 1))

    def writer(_: int) -> Callable[[], None]:
        table = DeltaTable(str(place))
        return lambda: table.create_write_transaction([*actions], "append", _SCHEMA, PARTITION_COLUMN)

    return hot_commits(writer, CommitFailedError)


def _generate(place: Path, dataset: Dataset) -> None:
    # Without transactions of delta-rs, each of which reads again what was committed since the table was loaded.
    _create(place)
    log = place / "_delta_log"
    for version in range(1, APPENDS + 1):
        with (log / f"{version:020}.json").open("w") as file:
            file.write(json.dumps({"commitInfo": {"timestamp": version, "operation": "WRITE"}}) + "\n")
            for action in _actions(dataset.append(version - 1)):
                file.write(json.dumps({"add": _added(action)}) + "\n")
    DeltaTable(str(place)).create_checkpoint()
    for version in range(APPENDS):
        (log / f"{version:020}.json").unlink()


def _create(place: Path) -> DeltaTable:
    return DeltaTable.create(str(place), _SCHEMA, partition_by=PARTITION_COLUMN)


def _append(table: DeltaTable, actions: Sequence[AddAction]) -> None:
    table.create_write_transaction(
        [*actions], "append", _SCHEMA, PARTITION_COLUMN, post_commithook_properties=_NO_CHECKPOINT
    )


def _added(action: AddAction) -> dict[str, Any]:
    """The action as in the log."""
    return {
        "path": action.path,
        "partitionValues": action.partition_values,
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _actions(entries: pa.Table) -> list[AddAction]:
    names = [name for name, _ in COLUMNS]
    nulls = dict.fromkeys(names, 0)
    sides = [
        [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        for columns in ([_values(entries.column(f"{side}.{n}")) for n in range(1, 6)] for side in ("min", "max"))
    ]
    return [
        AddAction(
            path=path,
            size=size,
            partition_values={PARTITION_COLUMN: str(p)},
            modification_time=0,
            data_change=True,
            stats=json.dumps({"numRecords": FILE_ROWS, "minValues": low, "maxValues": high, "nullCount": nulls}),
        )
        for path, size, p, low, high in zip(
            *(entries.column(name).to_pylist() for name in ("path", "size_bytes", "p")), *sides, strict=True
        )
    ]


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [f"{text[:19]}.000Z".replace(" ", "T") for text in column.cast(pa.string()).to_pylist()]
    return list(column.to_pylist())


if __name__ == "__main__":
    main("delta", "deltalake", {"plan": plan, "commit": commit})
