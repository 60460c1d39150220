"""The directory of backups: damaged, incomplete and foreign backups are reported."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from lakemark.errors import CorruptStore, InvalidArgument, Unavailable
from lakemark_server.backup import (
    BackupDamaged,
    BackupFormatUnknown,
    BackupNotFound,
    HalfRestored,
    Repository,
    restoration,
)
from lakemark_server.backup import manifest as manifests
from lakemark_server.backup.errors import BackupInUse
from lakemark_server.kv import Store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.integration.backup.conftest import backup, ballast, content, fill, opened, restored


def manifest_path(repository: Repository, backup_id: str) -> Path:
    return repository.directory / "backups" / f"{backup_id}.json"


def chunk_paths(repository: Repository) -> list[Path]:
    return sorted(repository.directory.glob("chunks/*/*"))


def test_one_of_several(source: Store, repository: Repository, tmp_path: Path) -> None:
    states = []
    for number in range(3):
        fill(source, {b"%d" % number: b"v"})
        states.append((backup(source, repository).id, content(source)))
    assert repository.ids() == [backup_id for backup_id, _ in states]
    assert repository.manifest().id == states[-1][0]
    for backup_id, state in states:
        (tmp_path / backup_id).mkdir()
        url = f"sqlite:///{tmp_path}/{backup_id}/lakemark.db"
        assert restored(url, repository, repository.manifest(backup_id)) == state


def test_pruning_keeps_what_the_others_need(source: Store, repository: Repository, target_url: str) -> None:
    fill(source, ballast(5_000))
    first = backup(source, repository)
    fill(source, {b"000001": b"changed"})
    second = backup(source, repository)
    fill(source, {b"004000": b"changed"})
    third = backup(source, repository, keep=2)
    assert repository.ids() == [second.id, third.id]
    assert repository.check() == []
    needed = {entry.name for manifest in (second, third) for entry in manifest.chunks}
    assert {path.name for path in chunk_paths(repository)} == needed
    assert {entry.name for entry in first.chunks} - needed
    assert restored(target_url, repository, second)[b"\x02zz\x00000001"] == b"changed"
    with pytest.raises(BackupNotFound, match=first.id):
        repository.manifest(first.id)
    with pytest.raises(InvalidArgument), repository.writing():
        repository.prune(0)


def test_what_a_dead_process_left_is_removed(source: Store, repository: Repository) -> None:
    fill(source, ballast(10))
    backup(source, repository)
    rest = [
        repository.directory / "chunks" / "00" / ("0" * 64),
        repository.directory / "chunks" / "00" / ("1" * 64 + ".unfinished"),
        repository.directory / "backups" / "20260101T000000.000Z.json.unfinished",
    ]
    rest[0].parent.mkdir(exist_ok=True)
    for path in rest:
        path.write_bytes(b"half")
    assert repository.check() == []
    assert len(repository.ids()) == 1
    with repository.writing():
        assert repository.prune(1) == []
    assert not any(path.exists() for path in rest)


def test_a_clock_that_goes_back_does_not_make_an_old_backup_the_newest(source: Store, repository: Repository) -> None:
    fill(source, ballast(10))
    first = backup(source, repository)
    later = manifests.encode(first).replace(first.id.encode(), b"29990101T000000.999Z")
    document = json.loads(later)
    del document["checksum"]
    document["checksum"] = manifests._checksum(document)
    manifest_path(repository, document["id"]).write_text(json.dumps(document))
    assert backup(source, repository).id == "29990101T000001.000Z"


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "another", "missing"])
def test_a_damaged_chunk(source: Store, repository: Repository, target_url: str, how: str) -> None:
    fill(source, ballast(4_000))
    manifest = backup(source, repository)
    path = repository.directory / "chunks" / manifest.chunks[1].name[:2] / manifest.chunks[1].name
    data = path.read_bytes()
    other = next(one for one in chunk_paths(repository) if one != path)
    if how == "missing":
        path.unlink()
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes({"flipped": flipped, "cut": data[:-1], "empty": b"", "another": other.read_bytes()}[how])
    assert len(repository.check()) == 1
    assert str(path) in repository.check()[0]
    with opened(target_url) as target:
        with pytest.raises(BackupDamaged, match="missing" if how == "missing" else "damaged"):
            restoration.restore(target, repository, manifest)
        # What came before it is there, and is not taken for a store.
        with pytest.raises(HalfRestored):
            backup(target, repository)
    path.unlink(missing_ok=True)
    assert backup(source, repository).new_chunks == 1, "what is still in the store mends the backup"
    assert repository.check() == []
    assert restored(target_url, repository, manifest) == content(source)


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "renamed"])
def test_a_damaged_manifest(source: Store, repository: Repository, how: str) -> None:
    fill(source, ballast(10))
    manifest = backup(source, repository)
    path = manifest_path(repository, manifest.id)
    text = path.read_text()
    if how == "renamed":
        path.rename(path.with_name("20260101T000000.000Z.json"))
    else:
        path.write_text({"flipped": text.replace('"pairs": 10', '"pairs": 11'), "cut": text[:-9], "empty": ""}[how])
    with pytest.raises(BackupDamaged, match="damaged"):
        repository.manifest()
    assert len(repository.check()) == 1
    with pytest.raises(BackupDamaged), repository.writing():
        repository.prune(1)
    assert chunk_paths(repository), "nothing is removed when it is not known what is needed"


def test_a_backup_of_a_newer_release(source: Store, repository: Repository) -> None:
    fill(source, ballast(10))
    path = manifest_path(repository, backup(source, repository).id)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(BackupFormatUnknown, match="format 2"):
        repository.manifest()


def test_a_directory_without_backups(tmp_path: Path) -> None:
    with pytest.raises(BackupNotFound, match="no backups"):
        Repository(tmp_path / "nothing").manifest()
    (tmp_path / "backups").mkdir()
    with pytest.raises(BackupNotFound, match="no complete backup"):
        Repository(tmp_path).manifest()


def test_two_writers(repository: Repository) -> None:
    with repository.writing(), pytest.raises(BackupInUse), Repository(repository.directory).writing():
        pass
    with repository.writing():
        pass


def test_a_disk_that_is_full(source: Store, repository: Repository) -> None:
    for number in range(20):
        fill(source, {b"%d" % number: bytes([number]) * 90_000})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(Unavailable, match="does not count"):
            backup(source, repository)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert repository.ids() == []
    assert backup(source, repository).pairs == 20
    assert repository.check() == []


class Stopped(Exception):
    pass


@pytest.fixture
def half(source: Store, repository: Repository, target_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A target that was half filled."""
    fill(source, ballast(4_000))
    manifest = backup(source, repository)
    calls = iter(range(len(manifest.chunks) // 2))
    plain = restoration._write

    def write(*arguments: object) -> None:
        if next(calls, None) is None:
            raise Stopped
        plain(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched, opened(target_url) as target:
        patched.setattr(restoration, "_write", write)
        with pytest.raises(Stopped):
            restoration.restore(target, repository, manifest)
    return target_url


def test_a_half_restored_store_is_not_served(half: str, tmp_path: Path) -> None:
    settings = Settings(store=half, warehouse=f"{tmp_path}/warehouse", grpc_port=0, hms_port=0)
    for _ in range(2):  # it lets go of the store
        with pytest.raises(HalfRestored, match="lakemark restore"):
            Service(settings)


def test_restoring_goes_on_where_it_stopped(
    half: str, source: Store, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = repository.manifest()
    read = []
    plain = Repository.read
    monkeypatch.setattr(Repository, "read", lambda self, entry: [read.append(entry), plain(self, entry)][1])
    assert restored(half, repository, manifest) == content(source)
    assert 0 < len(read) < len(manifest.chunks)
    with opened(half) as target, pytest.raises(Exception, match="not empty"):
        restoration.restore(target, repository, manifest)


def test_another_backup_needs_a_new_start(half: str, source: Store, repository: Repository) -> None:
    fill(source, {b"later": b""})
    newer = backup(source, repository)
    with opened(half) as target:
        with pytest.raises(HalfRestored, match="--start-over"):
            restoration.restore(target, repository, newer)
        restoration.start_over(target)
        assert content(target) == {}
        restoration.restore(target, repository, newer)
        assert content(target) == content(source)
        restoration.start_over(target)
        assert content(target) == content(source), "a store that is whole is not emptied"


def test_a_backup_of_a_broken_store_is_told(
    source: Store, repository: Repository, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source, ballast(10))
    manifest = backup(source, repository)
    monkeypatch.setattr(restoration, "verify", lambda store: ["t: there is a gap"])
    with opened(target_url) as target:
        with pytest.raises(CorruptStore, match="there is a gap"):
            restoration.restore(target, repository, manifest)
        with pytest.raises(HalfRestored):
            backup(target, repository)
        restoration.restore(target, repository, manifest, check=False)
        assert content(target) == content(source)
