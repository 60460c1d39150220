"""The directory of backups: chunks by their hash, a manifest for each backup that is complete.

::

    chunks/3f/3f09…    a chunk, compressed by zstd and named by the hash of its content; shared by all backups
    backups/<id>.json  the manifest, written last: without it there is no backup
    lock               held by the process that writes

Every file is written under another name, made durable and then renamed, so that a file under its own name is complete.
What a process left that died is used by the next backup, or removed by the next ``prune``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from lakemark_core.errors import FailedPrecondition, InvalidArgument, Unavailable

from . import manifest as manifests
from .chunks import Chunk, name_of
from .errors import BackupDamaged, BackupFormatUnknown, BackupInUse, BackupNotFound
from .manifest import ChunkEntry, Manifest

_CODEC: Final = "zstd"
_UNFINISHED: Final = ".unfinished"


class Repository:
    """Backups at ``directory``. Any number of processes may read; ``writing`` lets one write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._chunks = directory / "chunks"
        self._backups = directory / "backups"

    # -- reading -------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The ids of all complete backups, oldest first. Raises BackupNotFound if the directory has no backups."""
        if not self._backups.is_dir():
            raise BackupNotFound(f"there are no backups in {self.directory}")
        return sorted(path.stem for path in self._backups.glob("*.json") if manifests.is_id(path.stem))

    def manifest(self, backup_id: str = "") -> Manifest:
        """One manifest, by default the newest. Raises BackupNotFound, BackupFormatUnknown, BackupDamaged."""
        known = self.ids()
        if not backup_id and not known:
            raise BackupNotFound(f"there is no complete backup in {self.directory}")
        wanted = backup_id or known[-1]
        if wanted not in known:
            raise BackupNotFound(f"there is no backup {wanted!r} in {self.directory}; 'lakemark backup list' shows all")
        try:
            text = self._manifest_path(wanted).read_bytes()
        except OSError as error:
            raise BackupDamaged(f"backup {wanted} is damaged: its manifest cannot be read ({error})") from error
        manifest = manifests.decode(text, f"backup {wanted}")
        if manifest.id != wanted:
            raise BackupDamaged(f"backup {wanted} is damaged: its manifest is that of {manifest.id}")
        return manifest

    def manifests(self) -> list[tuple[str, Manifest | BackupDamaged | BackupFormatUnknown]]:
        """The id of each complete backup, oldest first, with its manifest or the error of reading that.

        Raises BackupNotFound if the directory has no backups.
        """
        backups: list[tuple[str, Manifest | BackupDamaged | BackupFormatUnknown]] = []
        for backup_id in self.ids():
            try:
                backups.append((backup_id, self.manifest(backup_id)))
            except (BackupDamaged, BackupFormatUnknown) as error:
                backups.append((backup_id, error))
        return backups

    def read(self, entry: ChunkEntry) -> bytes:
        """The content of the chunk, checked against its name. Raises BackupDamaged."""
        path = self._chunk_path(entry.name)
        try:
            data: bytes = pa.decompress(path.read_bytes(), decompressed_size=entry.bytes, codec=_CODEC, asbytes=True)
        except FileNotFoundError as error:
            raise BackupDamaged(f"the backup is not complete: {path} is missing") from error
        except (OSError, pa.ArrowException) as error:
            raise BackupDamaged(f"the backup is damaged: {path} cannot be read ({error})") from error
        if name_of(data) != entry.name:
            raise BackupDamaged(f"the backup is damaged: {path} does not hold what was written to it")
        return data

    def check(self) -> list[str]:
        """A sentence for each part of any backup that is missing or damaged. Reads all of them."""
        problems = []
        entries: dict[str, ChunkEntry] = {}
        for _, manifest in self.manifests():
            if isinstance(manifest, Manifest):
                entries.update((entry.name, entry) for entry in manifest.chunks)
            else:
                problems.append(manifest.message)
        for _, entry in sorted(entries.items()):
            try:
                self.read(entry)
            except BackupDamaged as error:
                problems.append(error.message)
        return problems

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Makes the directory if it is not there, and keeps other writers out. Raises BackupInUse."""
        with _told(self.directory):
            for path in (self.directory, self._chunks, self._backups):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupInUse(f"another process takes a backup to {self.directory}, or removes some") from None
            yield
        finally:
            os.close(descriptor)

    def put(self, chunk: Chunk) -> int:
        """Makes the chunk durable. Returns the bytes written, 0 if the chunk was there already. Raises Unavailable."""
        path = self._chunk_path(chunk.name)
        with _told(self.directory):
            if path.exists():
                return 0
            compressed = pa.compress(chunk.data, codec=_CODEC, asbytes=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write(path, compressed)
        return len(compressed)

    def publish(self, manifest: Manifest) -> None:
        """Adds the backup, all of whose chunks have been put. Raises Unavailable."""
        with _told(self.directory):
            for directory in {self._chunk_path(entry.name).parent for entry in manifest.chunks}:
                _sync(directory)
            _sync(self._chunks)
            _write(self._manifest_path(manifest.id), manifests.encode(manifest))
            _sync(self._backups)
            _sync(self.directory)

    def prune(self, keep: int) -> list[str]:
        """Removes all but the newest ``keep`` backups, and the chunks that these do not need. Returns the removed ids.

        Raises BackupDamaged or BackupFormatUnknown, and removes nothing, if it cannot tell which chunks they need.
        """
        if keep < 1:
            raise InvalidArgument("at least one backup is kept")
        known = self.ids()
        kept = known[-keep:]
        needed = {entry.name for backup_id in kept for entry in self.manifest(backup_id).chunks}
        removed = known[:-keep]
        with _told(self.directory):
            for backup_id in removed:
                self._manifest_path(backup_id).unlink()
            # Every manifest that is left must find its chunks, so the removal of the others is made durable first.
            _sync(self._backups)
            for path in [*self._chunks.glob("*/*"), *self._backups.glob("*" + _UNFINISHED)]:
                if path.name not in needed:
                    path.unlink()
        return removed

    def _chunk_path(self, name: str) -> Path:
        return self._chunks / name[:2] / name

    def _manifest_path(self, backup_id: str) -> Path:
        return self._backups / f"{backup_id}.json"


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(path.name + _UNFINISHED)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(unfinished, path)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise FailedPrecondition(f"{directory} cannot be written to: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(
            f"the backup cannot be written to {directory}: {error.strerror}; it does not count"
        ) from error
