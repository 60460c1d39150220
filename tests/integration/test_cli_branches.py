"""Branches, and several tables at once, on the command line, with real parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import connect
from lakemark.errors import CommitConflict, FailedPrecondition
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
    cli.json("branch", "create", "default.t", "dev")
    assert [one["name"] for one in cli.json("branch", "list", "default.t")] == ["main", "dev"]
    assert "is a branch of the table, not a tag" in cli("tag", "drop", "default.t", "dev")[2]
    assert "is dropped" in cli.text("branch", "drop", "default.t", "dev")


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
        ('[{"table": "default.t", "files": ["none.parquet"]}]', "is no file"),
        ('[{"table": "default.t", "files": ["plan.json"], "overwrite": "all"}]', "partitions, table"),
        ('[{"table": "default.t", "files": ["plan.json"], "partition": "m=1"}]', "is an object"),
        ('[{"table": "default.t", "files": ["plan.json"], "rows": 1}]', "means nothing"),
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
