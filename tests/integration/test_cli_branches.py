"""Branches, and several tables at once, on the command line, with real parquet files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import connect
from lakemark.errors import BranchNotFound, CommitConflict, FailedPrecondition, InvalidName
from tests.integration.grpc_server import running_service
from tests.integration.test_cli import Cli

COLUMNS = ("id bigint, month int", "--partitioned-by", "month")


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    with running_service(tmp_path / "service") as service:
        made = Cli(service.grpc_address, capsys)
        for name in ("default.t", "default.u"):
            made.json("tables", "create", name, *COLUMNS)
        yield made


def parquet(directory: Path, *ids: int) -> str:
    path = directory / f"{ids[0]}.parquet"
    pq.write_table(pa.table({"id": ids}), path)
    return str(path)


def ids(cli: Cli, table: str, branch: str = "") -> list[int]:
    with connect(cli.server) as client:
        return sorted(row["id"] for row in client.read(table, columns=["id"], branch=branch).to_pylist())


def test_a_branch_is_compared_brought_up_to_date_and_merged_back(cli: Cli, tmp_path: Path) -> None:
    cli.json("files", "commit", "default.t", parquet(tmp_path, 1), "--partition", "month=1")
    assert "forks from main at version 1" in cli.text("branch", "create", "default.t", "dev")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 2, 3), "--partition", "month=2", "--branch", "dev")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 4), "--partition", "month=3")

    found = cli.json("branch", "compare", "default.t", "dev", "main")
    assert [one["name"] for one in found["partitions"]] == ["month=2", "month=3"]
    assert found["left"]["changes"]["added_rows"] == 2
    shown = cli.text("branch", "compare", "default.t", "dev", "main")
    assert "2 of 2 partitions" in shown
    assert "+1 -0" in shown
    assert "can be merged without a conflict: 1 version" in shown

    merged = cli.text("branch", "merge", "default.t", "main", "--into", "dev")
    assert merged == "version 3 of dev of default.t replays 1 version of main\n"
    assert "merge_branch main" in cli.text("timeline", "versions", "default.t", "--branch", "dev")
    code, _, err = cli("branch", "merge", "default.t", "main", "--into", "dev")
    assert (code, "nothing that 'dev' does not have" in err) == (FailedPrecondition.exit_code, True)
    shown = cli.text("branch", "compare", "default.t", "dev", "v2")
    assert "as a fast-forward" in shown
    assert "nothing to merge" in shown
    assert "both have the same now" in cli.text("branch", "merge", "default.t", "dev", "--fast-forward-only")
    assert ids(cli, "default.t") == ids(cli, "default.t", "dev") == [1, 2, 3, 4]

    with_all = ("--partition", "month=1", "--overwrite", "partitions")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 5), *with_all, "--branch", "dev")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 6), *with_all)
    shown = cli.text("branch", "compare", "default.t", "dev", "main")
    assert "1 of 1 file groups that both changed" in shown
    code, _, err = cli("branch", "merge", "default.t", "dev")
    assert code == CommitConflict.exit_code
    assert err.removeprefix("error: ").strip() in shown, "the comparison says what the merge says"
    code, out, err = cli("branch", "merge", "default.t", "dev", "--json")
    told = json.loads(err)
    assert (code, out, told["code"], told["outcome"]) == (CommitConflict.exit_code, "", "commit_conflict", "fatal")
    assert (told["details"]["policy"], told["details"]["partitions"]) == ("partition", "month=1")


def test_tags(cli: Cli, tmp_path: Path) -> None:
    cli.json("files", "commit", "default.t", parquet(tmp_path, 1), "--partition", "month=1")
    assert cli.json("tag", "create", "default.t", "first", "--version", "1")["kind"] == "tag"
    assert "keeps version 1" in cli.text("tag", "create", "default.t", "again")
    assert [one["name"] for one in cli.json("tag", "list", "default.t")] == ["again", "first"]
    assert "for ever" in cli.text("tag", "list", "default.t")
    assert "is a tag of the table, not a branch" in cli("branch", "drop", "default.t", "again")[2]
    assert "is dropped" in cli.text("tag", "drop", "default.t", "again")
    assert cli.json("tag", "drop", "default.t", "first") == {"dropped": "first"}
    cli.json("branch", "create", "default.t", "dev")
    assert [one["name"] for one in cli.json("branch", "list", "default.t")] == ["main", "dev"]
    assert "is a branch of the table, not a tag" in cli("tag", "drop", "default.t", "dev")[2]
    assert cli.json("branch", "drop", "default.t", "dev") == {"dropped": "dev"}


def test_several_tables_are_committed_and_looked_at_together(cli: Cli, tmp_path: Path) -> None:
    cli.json("branch", "create", "default.u", "dev")
    plan = tmp_path / "plan.json"
    works = [
        {"table": "default.t", "files": [parquet(tmp_path, 1)], "partition": {"month": 1}},
        {"table": "default.u", "files": [parquet(tmp_path, 2), parquet(tmp_path, 3)], "partition": {"month": "2"}}
        | {"branch": "dev", "overwrite": "partitions"},
    ]
    plan.write_text(json.dumps(works))
    together = ("files", "commit-together", str(plan), "--metadata", "who=me", "--request-id", "r")
    done = cli.json(*together)
    assert [(one["table"], one["branch"], one["commit"]["version"]) for one in done] == [
        ("default.t", "main", 1),
        ("default.u", "dev", 1),
    ]
    assert cli.json(*together) == done, "the same request again"
    assert cli.json("timeline", "versions", "default.t")[0]["metadata"] == {"who": "me"}
    assert (ids(cli, "default.t"), ids(cli, "default.u", "dev"), ids(cli, "default.u")) == ([1], [2, 3], [])
    assert "version 2 of default.u@dev" in cli.text("files", "commit-together", str(plan))

    cli.json("tag", "create", "default.t", "kept", "--version", "1")
    wanted = ("default.t", "default.t@kept", "default.u@dev@v1", "default.u")
    found = cli.json("files", "snapshots", *wanted)
    assert [(one["table"], one["snapshot"]["version"]) for one in found] == list(zip(wanted, (2, 1, 1, 0), strict=True))
    assert "default.u@dev@v1" in cli.text("files", "snapshots", *wanted)


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ("{", "not JSON"),
        ("{}", "is a list"),
        ("[]", "is a list"),
        ('["t"]', "item 1"),
        ('[{"table": "default.t", "files": []}]', "list of paths"),
        ('[{"table": "default.t", "files": ["none.parquet"]}]', "is not a file"),
        ('[{"table": "default.t", "files": ["plan.json"], "overwrite": "all"}]', "partitions, table"),
        ('[{"table": "default.t", "files": ["plan.json"], "partition": "m=1"}]', "is an object"),
        ('[{"table": "default.t", "files": ["plan.json"], "rows": 1}]', "'rows' is not known"),
    ],
)
def test_a_plan_that_is_none(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str, word: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(plan)
    code, out, err = cli("files", "commit-together", "plan.json")
    assert (code, out) == (2, "")
    assert word in " ".join(err.replace("│", " ").split())


def test_one_that_cannot_be_staged_leaves_nothing_of_the_others(cli: Cli, tmp_path: Path) -> None:
    works = [
        {"table": "default.t", "files": [parquet(tmp_path, 1)], "partition": {"month": "1"}},
        {"table": "default.u", "files": [parquet(tmp_path, 2)], "partition": {"day": "1"}},
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(works))
    code, _, err = cli("files", "commit-together", str(plan))
    assert code != 0
    assert "not the partition columns" in err
    for table in ("default.t", "default.u"):
        assert [one["state"] for one in cli.json("timeline", "instants", table)] == ["rolled_back"]


@pytest.fixture
def history(cli: Cli, tmp_path: Path) -> list[int]:
    """The times of versions 1 and 2 of main. 'dev' forks from 1 and has one version of its own; 'kept' is version 1."""
    cli.json("files", "commit", "default.t", parquet(tmp_path, 1), "--partition", "month=1")
    cli.json("branch", "create", "default.t", "dev")
    cli.json("tag", "create", "default.t", "kept")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 2), "--partition", "month=2")
    on_dev = ("--partition", "month=3", "--branch", "dev")
    cli.json("files", "commit", "default.t", parquet(tmp_path, 3), *on_dev)
    cli.json("files", "commit", "default.t", parquet(tmp_path, 4), *on_dev)
    return [one["committed_ms"] for one in cli.json("timeline", "versions", "default.t", "--oldest-first")]


def months(files: list[dict[str, list[int]]]) -> list[int]:
    return sorted(one["partition"][0] for one in files)


def test_a_snapshot_is_named_with_the_table(cli: Cli, history: list[int]) -> None:
    time = dt.datetime.fromtimestamp(history[0] / 1_000, dt.UTC).isoformat(timespec="milliseconds")
    for name, expected in (
        ("default.t", [1, 2]),
        ("default.t@v1", [1]),
        ("default.t@V1", [1]),
        (f"default.t@{time}", [1]),
        ("default.t@kept", [1]),
        ("default.t@main", [1, 2]),
        ("default.t@dev", [1, 3, 3]),
        ("default.t@dev@v2", [1, 3]),
    ):
        assert months(cli.json("files", "list", name)["files"]) == expected
        assert months(cli.json("plan", name)["files"]) == expected
        assert len(cli.json("files", "slices", name)) == len(expected)
        groups = cli.json("files", "aggregate", name, "--by-partition")["groups"]
        assert [one["partition"][0] for one in groups] == sorted(set(expected))
        (found,) = cli.json("files", "snapshots", name)
        assert found["snapshot"]["files"] == len(expected)
        assert cli.json("timeline", "show", name)["snapshot"]["files"] == len(expected)
        assert len(cli.json("schema", "show", name)["columns"]) == 2


def test_ranges_and_branches_are_named_with_the_table(cli: Cli, history: list[int]) -> None:
    assert months(cli.json("files", "changes", "default.t@v1..v2")["added"]) == [2]
    assert months(cli.json("files", "changes", "default.t@dev@v1..v2")["added"]) == [3]
    assert months(cli.json("files", "changes", "default.t@dev", "--since", "1")["added"]) == [3, 3]
    assert cli.json("files", "replaced", "default.t@dev@v1..v3") == []
    assert [one["version"] for one in cli.json("timeline", "versions", "default.t@dev")] == [3, 2, 1]
    assert "version 2" in cli("files", "changes", "default.t@v2..v1")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["files", "list", "default.t@"], InvalidName.exit_code, "'@' is no snapshot; write t@v12"),
        (["files", "list", "default.t@v1@x"], InvalidName.exit_code, "names no snapshot; write t@v12"),
        (["files", "list", "default.t@2026-13-01"], InvalidName.exit_code, "is not a time"),
        (["files", "list", "default.t@nobody"], BranchNotFound.exit_code, "nobody"),
        (["files", "list", "default.t@dev", "--version", "1"], 2, "leave out the options"),
        (["plan", "default.t@v1", "--branch", "dev"], 2, "leave out the options"),
        (["files", "list", "default.t@v1..v2"], 2, "'lakemark files changes' reads a range"),
        (["files", "changes", "default.t"], 2, "say where to begin: --since VERSION, or default.t@v10..v12"),
        (["files", "changes", "default.t@dev"], 2, "takes a range after the @"),
        (["files", "changes", "default.t@v1..v2", "--upto", "2"], 2, "leave out the options"),
        (["timeline", "versions", "default.t@v1"], 2, "takes a branch after the @"),
        (["timeline", "versions", "default.t@dev", "--branch", "main"], 2, "leave out the options"),
    ],
)
@pytest.mark.usefixtures("history")
def test_names_of_snapshots_that_are_none(cli: Cli, arguments: list[str], code: int, reason: str) -> None:
    found, out, err = cli(*arguments)
    assert (found, out) == (code, "")
    assert reason in " ".join(err.replace("│", " ").split())
