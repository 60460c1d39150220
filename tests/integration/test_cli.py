"""The command line against the real service: what it prints, and how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import connect
from lakemark.cli.app import options_first, run
from lakemark.errors import (
    CommitConflict,
    CorruptStore,
    InvalidArgument,
    InvalidSchema,
    NotFound,
    TableNotFound,
    Unavailable,
)
from lakemark.parquet.adoption import adopt_files
from lakemark_server.kv import StoreInUse, open_store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.store.keyspace import HELD
from tests.integration.grpc_server import running_service


class Cli:
    """Runs command lines. ``json`` returns the parsed document, ``text`` what users see."""

    def __init__(self, server: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["--server", self.server, *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *arguments: str) -> Any:
        code, out, err = self("--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)

    def text(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    with running_service(tmp_path / "service") as service:
        made = Cli(service.grpc_address, capsys)
        made.json("databases", "create", "db")
        yield made


@pytest.fixture
def table(cli: Cli) -> str:
    cli.json("tables", "create", "db.t", "id bigint, name string, month int", "--partitioned-by", "month")
    return "db.t"


@pytest.fixture
def january(tmp_path: Path) -> str:
    path = tmp_path / "month=1" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), path)
    return str(path)


def test_databases(cli: Cli) -> None:
    assert cli.json("databases", "list") == ["db", "default"]
    assert cli.json("databases", "show", "db")["name"] == "db"
    assert "db" in cli.text("databases", "list")
    assert cli.json("databases", "drop", "db") == {"dropped": "db"}
    assert "default" in cli.text("databases", "show", "default")


def test_tables(cli: Cli, table: str) -> None:
    shown = cli.json("tables", "show", table)
    assert [one["name"] for one in shown["schema"]["columns"]] == ["id", "name", "month"]
    assert shown["schema"]["partition_columns"] == ["month"]
    assert "partition" in cli.text("tables", "show", table)
    assert cli.json("tables", "set", table, "k=v", "other=x=y")["properties"]["other"] == "x=y"
    assert "k" not in cli.json("tables", "set", table, "--remove", "k")["properties"]
    assert "other" in cli.text("tables", "set", table, "k=v")
    assert cli.json("tables", "rename", table, "u")["name"] == "db.u"
    assert [one["name"] for one in cli.json("tables", "list", "db")] == ["u"]
    assert "lake" in cli.text("tables", "list", "db")
    assert "dropped" in cli.text("tables", "drop", "db.u")


def test_a_dropped_table_is_listed_and_brought_back(cli: Cli, table: str, january: str) -> None:
    cli.json("files", "commit", table, january)
    until = cli.json("tables", "drop", table)["until_ms"]
    (one,) = cli.json("tables", "list", "db", "--dropped")
    assert (one["name"], one["until_ms"], one["version"], one["files"]) == (table, until, 1, 1)
    assert "@" in one["dropped_by"]
    listed = cli.text("tables", "list", "db", "--dropped")
    assert table in "".join(listed.split())
    assert "kept until" in " ".join(listed.split())
    back = cli.json("tables", "undrop", table, "--as", "again")
    assert (back["name"], back["version"], back["table_id"]) == ("db.again", 1, one["table_id"])
    assert cli.json("tables", "list", "db", "--dropped") == []

    assert "lakemark tables undrop db.again" in cli.text("tables", "drop", "db.again")
    assert "is back, at version 1" in cli.text("tables", "undrop", "db.again", "--id", str(one["table_id"]))
    assert cli.json("tables", "drop", "db.again")["dropped"] == "db.again"
    assert "deleted" in cli.text("tables", "purge", "db.again")
    code, _, error = cli("tables", "undrop", "db.again")
    assert code == TableNotFound.exit_code
    assert "there is no dropped table db.again" in " ".join(error.split())


def test_a_table_that_is_dropped_for_good(cli: Cli, table: str) -> None:
    assert cli.json("tables", "drop", table, "--now") == {"dropped": table, "until_ms": None}
    assert cli.json("tables", "list", "db", "--dropped") == []


def test_files_are_committed_listed_and_planned(cli: Cli, table: str, january: str, tmp_path: Path) -> None:
    done = cli.json("files", "commit", table, january, "--metadata", "who=me", "--request-id", "r1")
    assert done["version"] == 1
    assert cli.json("files", "commit", table, january, "--request-id", "r1")["version"] == 1
    assert "version 2" in cli.text("files", "commit", table, january, "--partition", "month=2")

    listed = cli.json("files", "list", table)
    assert [one["partition"] for one in listed["files"]] == [[1], [2]]
    assert cli.json("files", "list", table, "--version", "1")["summary"]["files_planned"] == 1
    assert "month=2" in cli.text("files", "list", table)
    plan = cli.json("plan", table, "--where", "month = 1 and id > 1", "--statistics", "id")
    assert plan["summary"]["files_planned"] == 1
    assert plan["files"][0]["statistics"][0]["max"] == 2
    assert "1 of 2" in cli.text("plan", table, "-w", "month = 1 and id > 1")

    pq.write_table(pa.table({"id": [9]}), tmp_path / "new.parquet")
    new = str(tmp_path / "new.parquet")
    cli.json("files", "commit", table, new, "--partition", "month=1", "--overwrite", "partitions")
    assert [one["row_count"] for one in cli.json("files", "list", table)["files"]] == [2, 1]
    cli.json("files", "commit", table, new, "--partition", "month=3", "--overwrite", "table")
    assert [one["partition"] for one in cli.json("files", "list", table)["files"]] == [[3]]
    assert Path(january).exists(), "the files are not taken away"
    pq.write_table(pa.table({"id": [8]}), new)
    with connect(cli.server) as client:
        assert client.read(table, columns=["id"]).to_pylist() == [{"id": 9}], "nor do they matter any more"


def test_aggregates_slices_and_replaced_files(cli: Cli, table: str, january: str) -> None:
    for overwrite in ([], ["--overwrite", "partitions"]):
        cli.json("files", "commit", table, january, *overwrite)
    (group,) = cli.json("files", "aggregate", table, "--columns", "id,name", "--by-partition")["groups"]
    assert (group["name"], group["rows"], group["columns"]["id"]["max"]) == ("month=1", 2, 2)
    assert group["columns"]["name"]["min"] == "a"
    shown = cli.text("files", "aggregate", table, "--where", "id = 1", "--columns", "id")
    assert all(one in shown for one in ("no: rows at most", "id from", "id nulls"))
    assert "month=2" not in cli.text("files", "aggregate", table, "--by-partition")

    (gone,) = cli.json("files", "replaced", table, "--since", "0")
    assert (gone["added_version"], gone["removed_version"]) == (1, 2)
    assert gone["path"] in cli.text("files", "replaced", table, "--since", "1")
    assert cli.json("files", "replaced", table, "--since", "0", "--upto", "1") == []

    instant = str(cli.json("timeline", "instants", table)[0]["instant"])
    (slice_,) = cli.json("files", "slices", table, "--view", "before_instant", "--before-instant", instant)
    assert slice_["base"]["path"] == gone["path"]
    assert cli.json("files", "slices", table, "--where", "month = 2") == []
    assert cli("files", "slices", table, "--view", "before_instant")[0] == 2
    assert cli("files", "slices", table, "--before-instant", instant)[0] == 2


def test_timeline(cli: Cli, table: str, january: str) -> None:
    instant = cli.json("files", "commit", table, january)["instant"]
    assert cli.json("timeline", "show", table)["snapshot"]["version"] == 1
    assert [one["instant"] for one in cli.json("timeline", "instants", table, "--state", "completed")] == [instant]
    assert cli.json("timeline", "versions", table)[0]["partitions"] == ["month=1"]
    for command in ("show", "instants", "versions"):
        assert "append" in cli.text("timeline", command, table)
    code, _, err = cli("timeline", "rollback", table, str(instant))
    assert code == 65
    assert "committed" in err


def test_errors_are_one_line_and_have_their_exit_code(cli: Cli, table: str, tmp_path: Path) -> None:
    code, out, err = cli("tables", "show", "db.nope")
    assert (code, out) == (TableNotFound.exit_code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "wrong.parquet")
    code, _, err = cli("files", "commit", table, str(tmp_path / "wrong.parquet"), "--partition", "month=1")
    assert code == InvalidSchema.exit_code
    assert "'id' is bigint" in err
    assert cli.json("timeline", "instants", table)[0]["state"] == "rolled_back"
    code, _, err = cli("files", "commit", table, str(tmp_path / "wrong.parquet"))
    assert code == InvalidSchema.exit_code
    assert CommitConflict.exit_code == 75


def test_a_file_is_not_taken_twice(cli: Cli, table: str, january: str) -> None:
    same = str(Path(january).parent / ".." / "month=1" / "part.parquet")
    code, _, err = cli("files", "commit", table, january, same)
    assert (code, "is given twice" in err) == (InvalidArgument.exit_code, True)
    assert cli.json("timeline", "versions", table) == []


def test_files_that_plain_spark_could_not_read_are_refused(cli: Cli, table: str, tmp_path: Path) -> None:
    narrow = tmp_path / "narrow.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), narrow)
    cli.json("tables", "create", "db.young", "id int")
    with connect(cli.server) as client, client.begin("db.young") as writer:
        client.tables.widen_column("db.young", "id", "bigint")
        writer.commit(adopt_files([narrow], writer).files)
        assert client.read("db.young").to_pylist() == [{"id": 1}], "its instant began with the older schema"

    for name in (table, "db.young"):
        code, _, err = cli("files", "commit", name, str(narrow), *(["--partition", "month=1"] if name == table else []))
        assert code == InvalidSchema.exit_code
        assert f"{narrow} does not fit {name}: column 'id' is bigint in the table and int32, stored as INT32" in err
        assert "write it as int64" in err


def test_names_are_shown_as_they_are(cli: Cli, table: str, january: str) -> None:
    cli.json("files", "commit", table, january)
    cli.json("savepoint", "create", table, "--comment", "[red]before[/b]")
    assert "[red]before[/b]" in cli.text("savepoint", "list", table)
    assert "[s]" in cli.text("tables", "set", table, "k=[s]")


def test_what_is_left_of_a_clean_is_asked_for(cli: Cli, table: str) -> None:
    code, _, err = cli("clean", table)
    assert code == 2
    assert "--retain-versions, --retain-days or both" in " ".join(err.split())


def test_no_service(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--server", "127.0.0.1:1", "--timeout", "0.2", "databases", "list"]) == Unavailable.exit_code
    assert "is it running?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["tables"],
        ["tables", "show"],
        ["tables", "set", "db.t"],
        ["tables", "set", "db.t", "novalue"],
        ["files", "commit", "db.t", "/does/not/exist.parquet"],
        ["plan", "db.t", "--version", "x"],
        ["serve", "--grpc-port", "70000"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["serve", "--help"], ["files", "commit", "-h"], ["version"]):
        assert run(arguments) == 0
    assert "lakemark" in capsys.readouterr().out


def test_common_options_may_stand_anywhere() -> None:
    assert options_first(["tables", "list", "db", "--json", "--server", "h:1"]) == [
        *("--json", "--server", "h:1"),
        *("tables", "list", "db"),
    ]
    assert options_first(["x", "y", "-s", "h:1", "--timeout", "5"]) == ["-s", "h:1", "--timeout", "5", "x", "y"]
    assert options_first(["x", "--timeout=5"]) == ["--timeout=5", "x"]
    assert options_first(["x", "--server=h:1", "--", "--json"]) == ["--server=h:1", "x", "--", "--json"]
    assert options_first(["x", "--server"]) == ["--server", "x"]


def test_serve_refuses_wrong_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--log-format", "xml"]) == 64
    assert "log_format" in capsys.readouterr().err


@pytest.mark.parametrize(("taken", "other"), [("--grpc-port", "--hms-port"), ("--hms-port", "--grpc-port")])
def test_serve_tells_of_a_port_in_use_in_one_line(tmp_path: Path, taken: str, other: str) -> None:
    """Output of other libraries on standard error counts too."""
    store = ["--store", f"sqlite:///{tmp_path}/lakemark.db"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        arguments = ["serve", *store, "--host", "127.0.0.1", taken, port, other, "0"]
        command = [sys.executable, "-c", "from lakemark.cli import main; main()", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == Unavailable.exit_code
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in line
    assert f"Choose one with {taken}" in line
    assert not (tmp_path / "lakemark.db").exists()


def test_serve_tells_the_whole_paths_of_store_and_warehouse(tmp_path: Path) -> None:
    ports = [word for name in ("grpc", "hms", "web") for word in (f"--{name}-port", "0")]
    places = ["--store", "sqlite:///a/lakemark.db", "--warehouse", "a/wh", "--log-format", "json"]
    command = [sys.executable, "-c", "from lakemark.cli import main; main()", "serve", *ports, *places]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert served.stdout
    assert served.stdout.readline().startswith("lakemark ready grpc=")
    served.terminate()
    _, log = served.communicate(timeout=60)
    (ready,) = (line for line in map(json.loads, log.splitlines()) if line["event"] == "ready")
    assert ready["store"] == f"sqlite:///{tmp_path}/a/lakemark.db"
    assert ready["warehouse"] == f"file:{tmp_path}/a/wh"


def test_verify_checks_a_store_served_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/service/lakemark.db"
    (tmp_path / "service").mkdir()
    with Service(Settings(store=url, warehouse=f"{tmp_path}/wh", grpc_port=0, hms_enabled=False)) as service:
        assert Cli(service.grpc_address, capsys).json("databases", "create", "db")
        assert run(["verify", "--store", url]) == 0
        assert "every invariant of the store holds" in capsys.readouterr().out
        assert run(["serve", "--store", url]) == StoreInUse.exit_code
        assert "is open in process" in capsys.readouterr().err
    assert run(["verify", "--store", url]) == 0
    assert "every invariant of the store holds" in capsys.readouterr().out
    store = open_store(url)
    store.transact(lambda tx: tx.set(HELD.key(1, 77, b"", "file:/nowhere"), b""))
    store.close()
    assert run(["--json", "verify", "--store", url]) == CorruptStore.exit_code
    found = capsys.readouterr()
    assert "file:/nowhere" in json.loads(found.out)["problems"][0]
    assert "do not hold" in found.err
    assert run(["verify", "--store", f"sqlite:///{tmp_path}/other.db"]) == NotFound.exit_code
    assert not (tmp_path / "other.db").exists(), "looking makes nothing"


def test_limits_of_a_catalog_without_databases_are_kept_and_told(cli: Cli) -> None:
    code, out, err = cli("quota", "set", "hvie", "tables=5")
    assert (code, out) == (0, "catalog hvie: tables=5\n")
    assert err == (
        "catalog hvie has no databases: the limits hold as soon as it gets one. Catalogs that have some: hive\n"
    )
    assert cli.json("quota", "set", "hvie", "tables=6")["usage"]["databases"] == 0
    assert cli.text("quota", "set", "hive", "tables=5") == "catalog hive: tables=5\n"


def test_events_and_consumers(cli: Cli) -> None:
    cli.json("tables", "create", "db.orders", "id bigint")
    cli.json("tables", "rename", "db.orders", "db.old")
    lines = cli.text("events", "list").splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert lines[3].endswith("table_renamed  db.old  was db.orders")
    assert cli.text("events", "list", "-n", "2").splitlines() == lines[2:]
    assert cli.text("events", "list", "--only", "*.orders", "--kind", "table_created").splitlines() == [lines[2]]
    assert cli.text("events", "list", "--after", "0", "-n", "1").splitlines() == [lines[0]]

    code, out, _ = cli("--json", "events", "follow", "--after", "1", "-n", "2")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["id"] for event in events] == ["0-2", "0-3"]
    assert events[1]["type"] == "io.lakemark.table_created"

    assert "after: name: table" in cli.text("events", "show", "3")
    assert "1 to 4" in cli.text("events", "show")
    assert cli.json("events", "show")["last"] == 4
    code, _, error = cli("events", "show", "9")
    assert (code, error) == (InvalidArgument.exit_code, "error: there is no event 9 yet; the last one has offset 4\n")


def test_consumers(cli: Cli) -> None:
    cli.json("tables", "create", "db.orders", "id bigint")
    assert "behind event 1; the last one has 3" in cli.text("consumers", "create", "c", "--after", "1", "--only", "db")
    assert cli.text("events", "follow", "--consumer", "c", "-n", "1").split()[0] == "2"
    assert cli.json("consumers", "list")[0]["offset"] == 2
    assert "db" in cli.text("consumers", "list")
    assert cli.json("consumers", "seek", "c", "--end")["offset"] == 3
    assert "goes on behind event 0" in cli.text("consumers", "seek", "c", "--after", "0")
    assert cli("consumers", "seek", "c")[0] == 2
    assert cli.json("consumers", "drop", "c") == {"dropped": True}
    assert cli("consumers", "drop", "c")[0] == NotFound.exit_code
    assert "there is no consumer" in cli.text("consumers", "drop", "c", "--if-exists")
