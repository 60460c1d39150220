"""Whether the data files that readers need now are where they should be, with the length that they should have.

It also finds files that nobody has.

Reads directory entries, not files. Many requests run at the same time, because an object store takes some milliseconds
for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from lakemark_core.errors import LakemarkError
from lakemark_core.storage import join, open_location
from lakemark_server.kv import Store
from lakemark_server.verify.heads import HeadFiles, Heads

WORKERS: Final = 16
FILES_A_REQUEST: Final = 128
_Wrong = dict[str, str]  # path below the table's location -> what is wrong with the file


@dataclass(slots=True)
class FilesFound:
    """What was checked. ``problems`` has a sentence for each missing file, each wrong size and each unreachable
    location.

    ``checked``: how many of the ``files``. ``orphans``: locations of files that nobody has; None: not looked for.
    """

    tables: int = 0
    files: int = 0
    bytes: int = 0
    checked: int = 0
    problems: list[str] = field(default_factory=list)
    orphans: list[str] | None = None
    orphan_bytes: int = 0


def check_files(store: Store, *, sample: int = 0, orphans: bool = False) -> FilesFound:
    """Checks the latest versions of all lake tables, on all branches. The store may be in use meanwhile.

    ``sample``: so many files of each table, chosen at random; 0: all. ``orphans``: also looks for files that nobody
    has, which lists each table's directory. Raises what reading the store raises.
    """
    checked = FilesFound(orphans=[] if orphans else None)
    heads = Heads(store)
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="lakemark-files") as pool:
        for table in heads.lake_tables():
            head = heads.files(table.entry.table_id)
            if head is None:
                continue
            checked.tables += 1
            checked.files += head.files
            checked.bytes += head.bytes
            wanted = _sampled(head, sample)
            checked.checked += head.files if wanted is None else len(wanted)
            checked.problems += _check_table(heads, head, wanted, pool)
            if checked.orphans is not None:
                _add_orphans(checked, checked.orphans, heads, head)
    return checked


def _sampled(head: HeadFiles, sample: int) -> npt.NDArray[np.int64] | None:
    """The places of the files to check; None: all."""
    if not sample or sample >= head.files:
        return None
    return np.random.default_rng().choice(head.files, sample, replace=False)


def _add_orphans(checked: FilesFound, orphans: list[str], heads: Heads, head: HeadFiles) -> None:
    try:
        for orphan in heads.orphans(head.table_id):
            orphans.append(join(head.location, orphan.path))
            checked.orphan_bytes += orphan.size_bytes
    except (LakemarkError, OSError) as error:
        checked.problems.append(f"{head.name}: {head.location} cannot be listed: {error}")


def _check_table(
    heads: Heads, head: HeadFiles, chosen: npt.NDArray[np.int64] | None, pool: ThreadPoolExecutor
) -> list[str]:
    try:
        system, root = open_location(head.location)
        wrong = dict(_wrong_files(_batches(head, chosen), system, root, pool))
    except (LakemarkError, OSError) as error:
        return [f"{head.name}: its files below {head.location} cannot be looked at: {error}"]
    if wrong:
        # Files that were replaced and cleaned while this was running are no longer needed.
        again = heads.files(head.table_id)
        needed = {path for batch in again.batches() for path in batch.column("path").to_pylist()} if again else set()
        wrong = {path: what for path, what in wrong.items() if path in needed}
    return [f"{head.name}: {join(head.location, path)} {what}" for path, what in sorted(wrong.items())]


def _batches(head: HeadFiles, chosen: npt.NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
    """The files to check."""
    start = 0
    for batch in head.batches():
        if chosen is None:
            yield batch
        else:
            here = np.sort(chosen[(chosen >= start) & (chosen < start + batch.num_rows)]) - start
            if len(here):
                yield batch.take(here)
        start += batch.num_rows


def _wrong_files(
    batches: Iterable[pa.RecordBatch], system: fs.FileSystem, root: str, pool: ThreadPoolExecutor
) -> Iterator[tuple[str, str]]:
    waiting: deque[Future[_Wrong]] = deque()
    for batch in batches:
        paths: list[Any] = batch.column("path").to_pylist()
        sizes: list[Any] = batch.column("size_bytes").to_pylist()
        for start in range(0, len(paths), FILES_A_REQUEST):
            wanted = dict(
                zip(paths[start : start + FILES_A_REQUEST], sizes[start : start + FILES_A_REQUEST], strict=True)
            )
            waiting.append(pool.submit(_look, system, root, wanted))
            if len(waiting) >= 2 * WORKERS:
                yield from waiting.popleft().result().items()
    while waiting:
        yield from waiting.popleft().result().items()


def _look(system: fs.FileSystem, root: str, wanted: dict[str, int]) -> _Wrong:
    wrong: _Wrong = {}
    infos = system.get_file_info([join(root, path) for path in wanted])
    for (path, size), info in zip(wanted.items(), infos, strict=True):
        if info.type != fs.FileType.File:
            wrong[path] = "is missing" if info.type == fs.FileType.NotFound else "is not a file"
        elif info.size != size:
            wrong[path] = f"has {info.size} bytes, and should have {size}"
    return wrong
