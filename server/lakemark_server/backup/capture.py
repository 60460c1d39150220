"""Takes a backup: all of a store as of one moment, while others go on writing to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final

from lakemark_server.kv import Store

from .chunks import chunks
from .errors import BackupNotFound
from .manifest import ChunkEntry, Manifest
from .marker import refuse_half_restored
from .needs import data_needed
from .repository import Repository

Now = Callable[[], datetime]
_MILLISECOND: Final = timedelta(milliseconds=1)


def utc_now() -> datetime:
    return datetime.now(UTC)


def take(store: Store, repository: Repository, release: str, now: Now = utc_now) -> Manifest:
    """Copies what no backup in the repository has yet, and adds a backup.

    The caller is inside ``repository.writing()``. ``release`` is Lakemark's. Raises HalfRestored, BackupNotFound for an
    empty store (opened by a wrong URL, it must not displace good backups), Unavailable and what ``Store.export``
    raises; no backup is added then.
    """
    refuse_half_restored(store)
    started = now()
    entries = []
    new_chunks = new_bytes = 0
    with store.export() as export:
        for chunk in chunks(chain.from_iterable(export.pages)):
            written = repository.put(chunk)
            new_chunks += written > 0
            new_bytes += written
            entries.append(ChunkEntry(chunk.name, chunk.pairs, len(chunk.data)))
        version = export.version
    if not entries:
        raise BackupNotFound("the store is empty: there is nothing to back up. Is its URL right?")
    needs = data_needed(store)
    manifest = Manifest(
        id=_new_id(repository.ids(), started),
        lakemark=release,
        store=store.name,
        version=version,
        started=_text(started),
        finished=_text(now()),
        chunks=entries,
        new_chunks=new_chunks,
        new_bytes=new_bytes,
        needs=needs,
    )
    repository.publish(manifest)
    return manifest


def _new_id(known: list[str], moment: datetime) -> str:
    """An id after all known ones, whatever the clock says."""
    while known and _id(moment) <= known[-1]:
        last = datetime.strptime(known[-1], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
        moment = last + _MILLISECOND
    return _id(moment)


def _id(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z"


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
