"""``lakemark backup`` and ``restore`` as users see them: damage, and what a backup does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.cli.app import run
from lakemark_server.backup import BackupDamaged, BackupFormatUnknown, Repository, needs
from lakemark_server.backup import manifest as manifests
from lakemark_server.backup.needs import outermost
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.integration.grpc_server import connected


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The URL of a store with two files of db.t, one of branch dev, and one of db.far, which is located elsewhere."""
    url = f"sqlite:///{tmp_path}/lakemark.db"
    settings = Settings(store=url, warehouse=f"{tmp_path}/wh", grpc_port=0, hms_enabled=False)
    with Service(settings) as service, connected(service) as client:
        client.databases.create("db")
        client.tables.create("db.t", {"id": "bigint"})
        client.tables.create("db.far", {"id": "bigint"}, location=f"file:{tmp_path}/far")
        client.tables.create("db.empty", {"id": "bigint"})

        def append(table: str, branch: str = "") -> None:
            with client.begin(table, branch=branch) as writer:
                writer.write(pa.table({"id": [1]}))
                writer.commit()

        append("db.t")
        append("db.t")
        client.branches.create("db.t", "dev")
        append("db.t", "dev")
        append("db.far")
        yield url


class Backups:
    """Runs ``lakemark backup`` on a directory."""

    def __init__(self, directory: Path, store: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.store, self._capsys = directory, store, capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run([*arguments])
        found = self._capsys.readouterr()
        return code, found.out, found.err

    def take(self) -> str:
        """Takes a backup and returns its id."""
        code, out, err = self("--json", "backup", str(self.directory), "--store", self.store)
        assert (code, err) == (0, "")
        return str(json.loads(out)["id"])

    def manifest(self, backup_id: str) -> Path:
        return self.directory / "backups" / f"{backup_id}.json"


@pytest.fixture
def backups(tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]) -> Backups:
    return Backups(tmp_path / "backups", store, capsys)


def test_list_shows_the_others_beside_a_damaged_one(backups: Backups) -> None:
    ids = [backups.take() for _ in range(3)]
    path = backups.manifest(ids[1])
    path.write_text(path.read_text()[:-9])
    code, out, err = backups("backup", "list", str(backups.directory))
    assert code == BackupDamaged.exit_code
    assert all(one in out for one in ids)
    (line,) = (line for line in out.splitlines() if ids[1] in line)
    assert f"backup {ids[1]} is damaged: it cannot be read as a manifest" in line
    assert err.startswith("error: 1 of 3 backups cannot be used")

    code, out, _ = backups("--json", "backup", "list", str(backups.directory))
    assert code == BackupDamaged.exit_code
    assert [(one["id"], one["problem"] is None) for one in json.loads(out)] == list(
        zip(ids, (True, False, True), strict=True)
    )


@pytest.mark.parametrize(("how", "error"), [("newer", BackupFormatUnknown), ("no file", BackupDamaged)])
def test_list_and_check_go_on_whatever_is_wrong(backups: Backups, how: str, error: type[BackupDamaged]) -> None:
    ids = [backups.take() for _ in range(2)]
    path = backups.manifest(ids[0])
    if how == "newer":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    else:
        path.unlink()
        path.mkdir()
    code, out, _ = backups("backup", "list", str(backups.directory))
    assert code == error.exit_code
    assert all(one in out for one in ids)
    (problem,) = Repository(backups.directory).check()
    assert ids[0] in problem


def test_every_command_says_that_data_files_are_not_in_it(backups: Backups, tmp_path: Path) -> None:
    backups.take()
    parts = ["4 data files (", ") of the latest versions of 3 lake tables", f"  file:{tmp_path}/far\n", "/wh/db.db\n"]
    directory, other = str(backups.directory), f"sqlite:///{tmp_path}/restored.db"
    code, taken, _ = backups("backup", directory, "--store", backups.store)
    assert code == 0
    assert "The backup holds metadata only." in taken
    checked, restored = backups("backup", "check", directory)[1], backups("restore", directory, "--store", other)[1]
    assert "They hold metadata only." in checked
    assert "Only metadata was restored. 'lakemark verify --files' on this store checks the rest." in restored
    for shown in (taken, checked, restored):
        assert all(part in shown for part in parts), shown
    listed = backups("backup", "list", directory)[1]
    assert "data files" in listed
    assert "problem" not in listed.splitlines()[0] + listed.splitlines()[1]

    assert backups("verify", "--files", "--store", other)[0] == 0
    next(tmp_path.glob("far/**/*.parquet")).unlink()
    assert "is missing" in backups("verify", "--files", "--store", other)[1]


def test_a_backup_of_an_older_release_says_that_it_does_not_know(backups: Backups, tmp_path: Path) -> None:
    path = backups.manifest(backups.take())
    document = json.loads(path.read_text())
    del document["needs"], document["checksum"]
    path.write_text(json.dumps({**document, "checksum": manifests._checksum(document)}))
    assert backups("backup", "list", str(backups.directory))[0] == 0
    code, out, _ = backups("restore", str(backups.directory), "--store", f"sqlite:///{tmp_path}/restored.db")
    assert code == 0
    assert "which data files it needs is not known" in out


def test_not_all_of_very_many_tables_are_counted(backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "TABLES_COUNTED_MAX", 2)  # by name: db.empty and db.far
    monkeypatch.setattr(needs, "DIRECTORIES_MAX", 1)
    _, out, _ = backups("backup", str(backups.directory), "--store", backups.store)
    assert "needs 1 data file (" in out
    assert "The files of 1 lake table were not counted." in out
    assert "… and 1 more directory\n" in out


def test_outermost_directories() -> None:
    given = ["s3://a/db", "s3://a/db/t", "s3://a/db2", "file:/w/", "file:/w/x/y", ""]
    assert outermost(given) == ["file:/w", "s3://a/db", "s3://a/db2"]
