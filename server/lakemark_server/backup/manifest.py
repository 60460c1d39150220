"""The manifest of a backup: a JSON document that lists its parts, with a checksum of itself. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .errors import BackupDamaged, BackupFormatUnknown

FORMAT: Final = 1
_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z")
_NAME: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk of ``bytes`` bytes uncompressed; ``name`` is their hash."""

    name: str
    pairs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DataNeeded:
    """What a restored store needs beside the backup, as of when the backup was taken.

    ``files`` and ``bytes`` count the latest versions of the lake tables on all branches; older versions and tags may
    need more. ``directories`` are those of the databases and of lake tables elsewhere; ``directories_left_out`` more
    are not listed. ``uncounted_tables``: lake tables that are not counted in ``files``, because there are too many or
    because they could not be read.
    """

    lake_tables: int
    warehouse_tables: int
    files: int
    bytes: int
    directories: Sequence[str]
    directories_left_out: int
    uncounted_tables: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One consistent copy of a store, of metadata only.

    ``store`` is the backend of the copied store, ``version`` the version of it that was copied. ``new_chunks`` were
    written for this backup, ``new_bytes`` of them on the disk; all other chunks were there before. ``needs`` is the
    data that the metadata refers to; None if an older release wrote the backup. Times are in UTC as in RFC 3339.
    """

    id: str
    lakemark: str
    store: str
    version: int
    started: str
    finished: str
    chunks: Sequence[ChunkEntry]
    new_chunks: int
    new_bytes: int
    needs: DataNeeded | None = None

    @property
    def pairs(self) -> int:
        return sum(chunk.pairs for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """The size of all chunks, uncompressed."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def content(self) -> str:
        """A hash of all that was copied, which is equal for stores of equal content in any backend."""
        return hashlib.blake2b("".join(chunk.name for chunk in self.chunks).encode(), digest_size=32).hexdigest()


def encode(manifest: Manifest) -> bytes:
    known = asdict(manifest)
    known["chunks"] = [[chunk.name, chunk.pairs, chunk.bytes] for chunk in manifest.chunks]
    document = {"format": FORMAT, **known, "pairs": manifest.pairs, "bytes": manifest.bytes}
    return (json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n").encode()


def decode(text: bytes, where: str) -> Manifest:
    """Raises BackupFormatUnknown, BackupDamaged, whose messages name ``where``."""
    try:
        document = json.loads(text)
        written_format = document["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise BackupDamaged(f"{where} is damaged: it cannot be read as a manifest") from error
    if not isinstance(written_format, int) or written_format > FORMAT:
        raise BackupFormatUnknown(
            f"{where} has format {written_format}, and this release of Lakemark knows formats up to {FORMAT}; "
            "use the release that wrote it, or a newer one"
        )
    checksum = document.pop("checksum", None)
    if checksum != _checksum(document):
        raise BackupDamaged(f"{where} is damaged: its checksum is another one")
    try:
        chunks = [ChunkEntry(*chunk) for chunk in document["chunks"]]
        names = ("id", "lakemark", "store", "version", "started", "finished", "new_chunks", "new_bytes")
        needs = document.get("needs")
        manifest = Manifest(
            chunks=chunks,
            needs=None if needs is None else DataNeeded(**needs),
            **{name: document[name] for name in names},
        )
    except (KeyError, TypeError) as error:
        raise BackupDamaged(f"{where} is damaged: {error} is missing or wrong") from error
    if not is_id(manifest.id) or not all(_NAME.fullmatch(chunk.name) for chunk in chunks):
        raise BackupDamaged(f"{where} is damaged: it names no backup, or parts that there cannot be")
    return manifest


def is_id(text: str) -> bool:
    """Whether this is the form of a backup's id: the time in UTC when it was begun."""
    return _ID.fullmatch(text) is not None


def _checksum(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
