"""``lakemark verify --files`` names data files of every branch that are missing or too short, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.errors import CorruptStore, InvalidArgument
from lakemark_server.kv import Store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.verify import check_files, files, orphans
from tests.integration.grpc_server import connected


@dataclass
class World:
    """A service on a store, and its tables: db.t with 3 files, one on branch dev, and db.empty."""

    client: Client
    store: Store
    url: str

    def paths(self, branch: str = "") -> list[Path]:
        return [Path(one.removeprefix("file:")) for one in sorted(self.client.plan("db.t", branch=branch).paths)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    url = f"sqlite:///{tmp_path}/lakemark.db"
    settings = Settings(store=url, warehouse=f"{tmp_path}/wh", grpc_port=0, hms_enabled=False)
    with Service(settings) as service, connected(service) as client:
        client.databases.create("db")
        for name in ("t", "empty"):
            client.tables.create(f"db.{name}", {"id": "bigint", "month": "int"}, partitioned_by=["month"])
        append(client, 1, 2)
        client.branches.create("db.t", "dev")
        append(client, 3, branch="dev")
        yield World(client, service.store, url)


def append(client: Client, *months: int, branch: str = "", operation: str = "append") -> None:
    with client.begin("db.t", operation, branch=branch) as writer:  # type: ignore[arg-type]
        writer.write(pa.table({"id": months, "month": pa.array(months, pa.int32())}))
        writer.commit()


def test_all_files_are_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILES_A_REQUEST", 1)
    monkeypatch.setattr(files, "WORKERS", 1)
    found = check_files(world.store)
    sizes = sum(path.stat().st_size for path in world.paths("dev"))
    assert (found.tables, found.files, found.bytes, found.problems) == (2, 3, sizes, [])


def test_what_is_missing_or_shorter_is_named(world: World) -> None:
    first, second = world.paths()
    (of_branch,) = set(world.paths("dev")) - {first, second}
    size = first.stat().st_size
    first.write_bytes(first.read_bytes()[:-7])
    second.unlink()
    of_branch.unlink()
    of_branch.mkdir()
    problems = check_files(world.store).problems
    assert sorted(problems) == sorted(
        [
            f"db.t: file:{first} has {size - 7} bytes, and should have {size}",
            f"db.t: file:{second} is missing",
            f"db.t: file:{of_branch} is not a file",
        ]
    )


def test_files_of_older_versions_are_not_needed(world: World) -> None:
    gone = world.paths()
    append(world.client, 7, operation="overwrite_table")
    world.client.branches.drop("db.t", "dev")
    for path in gone:
        path.unlink()
    assert check_files(world.store).files == 1
    assert check_files(world.store).problems == []


def test_what_is_replaced_while_it_looks_is_not_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    look = files._look
    world.client.branches.drop("db.t", "dev")

    def replaced_meanwhile(*arguments: object) -> object:
        if len(world.paths()) == 2:
            for path in world.paths():
                path.unlink()
            append(world.client, 7, operation="overwrite_table")
        return look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_look", replaced_meanwhile)
    assert check_files(world.store).problems == []


def test_a_location_out_of_reach_is_one_problem(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_look", refuse)
    (problem,) = check_files(world.store).problems
    assert problem.startswith("db.t: its files below file:")
    assert "Permission denied" in problem


def test_a_sample_looks_at_so_many_files_of_each_table(world: World) -> None:
    found = check_files(world.store, sample=2)
    assert (found.files, found.checked, found.problems, found.orphans) == (3, 2, [], None)
    assert check_files(world.store, sample=50).checked == 3
    for path in world.paths("dev"):
        path.unlink()
    assert len(check_files(world.store, sample=2).problems) == 2


def test_files_that_nobody_has_are_found(world: World) -> None:
    def orphans() -> list[str]:
        found = check_files(world.store, orphans=True)
        assert found.problems == []
        assert found.orphans is not None
        assert found.orphan_bytes == sum(Path(one.removeprefix("file:")).stat().st_size for one in found.orphans)
        return found.orphans

    location = Path(world.client.tables.get("db.t").location.removeprefix("file:"))
    world.client.tags.create("db.t", "first", version=1)
    append(world.client, 7, operation="overwrite_table")
    append(world.client, 8)
    world.client.branches.drop("db.t", "dev")
    writer = world.client.begin("db.t", "append")
    writer.write(pa.table({"id": [1], "month": pa.array([9], pa.int32())}))
    assert orphans() == [], "versions, tags, dropped branches and writers have theirs"

    open_instant = Path(writer.location.removeprefix("file:")).name
    beside = world.paths()[0].parent / "second-attempt.parquet"
    for path in (location / "1" / "lost" / "a.parquet", location / "stray", beside, beside.with_name(".crc")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"lost")
    (location / open_instant / "more").mkdir()
    (location / open_instant / "more" / "a.parquet").write_bytes(b"half")
    expected = sorted(f"file:{path}" for path in (location / "1" / "lost" / "a.parquet", location / "stray", beside))
    assert orphans() == expected

    world.client.timeline.clean("db.t", retain_versions=1)
    assert orphans() == expected, "what a clean leaves for the tag, and of dropped branches, has somebody"
    writer.commit()
    half = f"file:{location / open_instant / 'more' / 'a.parquet'}"
    assert orphans() == sorted([*expected, half])
    assert world.client.read("db.t", tag="first").num_rows == 2


def test_what_is_deleted_while_it_looks_is_no_orphan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Path(world.client.tables.get("db.t").location.removeprefix("file:"))
    (location / "stray").write_bytes(b"x")
    unowned = orphans._unowned

    def deleted_meanwhile(*arguments: object) -> object:
        (location / "stray").unlink(missing_ok=True)
        return unowned(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(orphans, "_unowned", deleted_meanwhile)
    assert check_files(world.store, orphans=True).orphans == []


def test_the_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--store", world.url, "--files"]) == 0
    shown = capsys.readouterr().out
    assert "every invariant of the store holds" in shown
    assert "3 data files" in shown
    assert "of 2 lake tables are there" in shown
    path = world.paths()[0]
    path.unlink()
    assert run(["verify", "--store", world.url]) == 0, "only with --files"
    capsys.readouterr()
    assert run(["verify", "--store", world.url, "--files"]) == CorruptStore.exit_code
    found = capsys.readouterr()
    assert f"{path} is missing" in found.out
    assert "1 data file of the latest versions is missing or not as long as it should be" in found.err
    assert run(["--json", "verify", "--store", world.url, "--files"]) == CorruptStore.exit_code
    told = json.loads(capsys.readouterr().out)
    assert (told["problems"], told["files"]["files"], len(told["files"]["problems"])) == ([], 3, 1)


def test_the_command_shows_orphans(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--store", world.url, "--files", "--orphans", "--sample", "1"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 3 data files" in shown
    assert "0 files (0 B) that nobody has" in shown
    stray = world.paths()[0].parent / "stray"
    stray.write_bytes(b"lost")
    assert run(["verify", "--store", world.url, "--files", "--orphans"]) == 0, "waste is no damage"
    shown = capsys.readouterr().out
    assert f"file:{stray}\n" in shown
    assert "1 file (4 B) that nobody has" in shown
    assert run(["--json", "verify", "--store", world.url, "--files", "--orphans"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]["orphans"] == [f"file:{stray}"]
    assert run(["verify", "--store", world.url, "--orphans"]) == InvalidArgument.exit_code
