"""Buckets that split and merge, over gRPC: versions that touch no file, plans, writers on both sides, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lakemark import Client, CommitConflict, DataFile, Writer
from lakemark.client.model import Operation
from lakemark.errors import FailedPrecondition, InvalidArgument, InvalidFile, Unavailable
from lakemark.files.model import FileKind
from lakemark_core.bucket_directory import BucketChanges, Directory
from lakemark_core.bucket_tree import at_depth, bucket_named, group_name
from lakemark_core.buckets import hash_of_key
from lakemark_core.types import BIGINT, Field
from lakemark_server.process import Service
from lakemark_server.timeline.jobs.batcher import Batcher
from lakemark_server.timeline.jobs.commit import CommitJob
from lakemark_server.verify import verify
from tests.integration.grpc_server import connected, running_service
from tests.integration.test_cli import Cli

PROPERTIES = {
    "lakemark.primary-key": "id,p",
    "lakemark.bucket.index": "extendible",
    "lakemark.bucket.count": "2",
    "lakemark.write.mode": "merge-on-read",
    "lakemark.conflict.policy": "file_group",
}
SPLIT = "lakemark.bucket.split-size-bytes"
T = "b.t"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as client:
        client.databases.create("b")
        client.tables.create(T, "id bigint, x int, p string", partitioned_by=["p"], properties=PROPERTIES)
        yield client


def entry(writer: Writer, group: str, kind: FileKind = "base", size: int = 10, p: str = "a") -> DataFile:
    path = f"{writer.instant}/p={p}/{group}-{kind}/f"
    return DataFile(path, size, 1, (p,), file_group=group, bucket=bucket_named(group), kind=kind)


def put(
    client: Client, *groups: str, operation: Operation = "upsert", size: int = 10, branch: str = "", p: str = "a"
) -> int:
    with client.begin(T, operation, file_groups=groups, partitions=[{"p": p}], branch=branch) as writer:
        return writer.commit([entry(writer, group, size=size, p=p) for group in groups]).version


def names(client: Client) -> list[str]:
    return [one.name for one in client.buckets.list(T)]


def bucket(key: int, depth: int) -> str:
    return group_name(at_depth(hash_of_key([key], [Field(1, "id", BIGINT)]), depth))


def test_a_split_and_a_merge_are_versions_without_files(client: Client) -> None:
    put(client, "bucket-0-of-2", "bucket-1-of-2")
    before = client.plan(T).paths
    assert names(client) == ["bucket-0-of-2", "bucket-1-of-2"]

    table = client.buckets.alter(T, split=["bucket-1-of-2"])
    assert table.table_kind.directory == Directory.uniform(1).altered([3], [])
    assert (table.version, client.plan(T).paths) == (2, before)
    assert names(client) == ["bucket-0-of-2", "bucket-1-of-4", "bucket-3-of-4"]
    client.buckets.alter(T, split=["bucket-0-of-2"], merge=["bucket-1-of-2"])
    assert names(client) == ["bucket-0-of-4", "bucket-1-of-2", "bucket-2-of-4"]

    client.tables.set_properties(T, {SPLIT: "20000"})
    client.tables.rename(T, "b.u")
    client.tables.rename("b.u", T)
    assert names(client) == ["bucket-0-of-4", "bucket-1-of-2", "bucket-2-of-4"], "it stays with the table"

    told = client.timeline.versions(T)[1:]
    assert [(one.operation, one.metadata["changes"]) for one in told] == [
        ("alter_buckets", "split bucket-1-of-2"),
        ("alter_buckets", "split bucket-0-of-2; merge bucket-1-of-2"),
    ]
    assert [one.action for one in client.timeline.instants(T)][1:] == ["buckets", "buckets"]


def test_what_is_refused_changes_nothing(client: Client) -> None:
    client.tables.create(
        "b.fixed", "id bigint", properties={"lakemark.primary-key": "id", "lakemark.bucket.count": "2"}
    )
    cases: list[tuple[str, dict[str, list[str]], type[Exception], str]] = [
        ("b.fixed", {"split": ["bucket-0-of-2"]}, InvalidArgument, "lakemark.bucket.index = 'extendible'"),
        (T, {}, InvalidArgument, "no bucket to split or to merge"),
        (T, {"split": ["bucket-1"]}, InvalidArgument, "'bucket-1' is not the name of a bucket"),
        (T, {"split": ["bucket-0-of-2", "bucket-1-of-4"]}, FailedPrecondition, "bucket-1-of-4 is not in the directory"),
        (T, {"merge": ["bucket-0-of-1"]}, FailedPrecondition, "a table never has fewer"),
    ]
    for table, changes, error, told in cases:
        with pytest.raises(error, match=told):
            client.buckets.alter(table, **changes)
    with pytest.raises(InvalidArgument, match=r"lakemark\.bucket\.index"):
        client.buckets.list("b.fixed")
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        client.tables.set_properties(T, {"lakemark.bucket.index": "fixed"})
    with pytest.raises(InvalidArgument, match="not one of"):
        client.begin(T, "alter_buckets")  # type: ignore[arg-type]
    client.tables.set_properties(T, {SPLIT: "100000"})
    assert names(client) == ["bucket-0-of-2", "bucket-1-of-2"]
    assert client.snapshot(T).version == 0


def test_the_deepest_bucket_is_not_split(client: Client) -> None:
    for depth in range(1, 16):
        client.buckets.alter(T, split=[f"bucket-0-of-{1 << depth}"])
    with pytest.raises(FailedPrecondition, match="bucket-0-of-65536 is as deep as a bucket can be"):
        client.buckets.alter(T, split=["bucket-0-of-65536"])
    assert len(names(client)) == 17


@pytest.mark.parametrize(
    ("group", "number", "told"),
    [
        ("bucket-1-of-4", 3, "bucket 3 is file group 'bucket-1-of-2'"),
        ("bucket-0", 0, "bucket 0 is no bucket of an extendible index"),
        ("bucket-1-of-2", 1 << 17, "no bucket of an extendible index"),
    ],
)
def test_files_name_a_bucket_and_its_group(client: Client, group: str, number: int, told: str) -> None:
    with client.begin(T, "upsert") as writer, pytest.raises(InvalidFile, match=told):
        writer.commit([DataFile(f"{writer.instant}/p=a/x/f", 1, 1, ("a",), file_group=group, bucket=number)])


def test_a_plan_for_keys_has_the_buckets_of_every_depth_that_may_have_them(client: Client) -> None:
    keys = {bucket(key, 2): key for key in range(100)}
    first, second = keys["bucket-1-of-4"], keys["bucket-3-of-4"]
    put(client, "bucket-0-of-2", "bucket-1-of-2")
    client.buckets.alter(T, split=["bucket-1-of-2"])
    with client.begin(T, "upsert") as writer:
        writer.commit([entry(writer, "bucket-1-of-4", "delta"), entry(writer, "bucket-3-of-4", "delta")])

    def planned(where: str) -> set[tuple[str, str]]:
        return {(file.kind, file.file_group) for file in client.plan(T, where)}

    old, low, high = ("base", "bucket-1-of-2"), ("delta", "bucket-1-of-4"), ("delta", "bucket-3-of-4")
    assert planned(f"id = {first} and p = 'a'") == {old, low}, "the file of before the split, and the half"
    assert planned(f"id = {second}") == {old, high}
    assert planned(f"id in ({first}, {second})") == {old, low, high}
    assert planned(f"id = {keys['bucket-2-of-4']}") == {("base", "bucket-0-of-2")}
    # The deltas change rows of the old file, so its own statistics do not leave it out; those of others do.
    assert old in planned("x = 1")


def test_writers_on_both_sides_of_a_split(client: Client) -> None:
    """One that began before commits what it has, and excludes those whose keys it may share, and no others."""
    put(client, "bucket-0-of-2", "bucket-1-of-2")
    with client.begin(T, "upsert") as before, client.begin(T, "upsert") as other, client.begin(T, "upsert") as third:
        client.buckets.alter(T, split=["bucket-1-of-2"])
        other.commit([entry(other, "bucket-3-of-4", "delta")])
        third.commit([entry(third, "bucket-1-of-4", "delta")])
        with pytest.raises(CommitConflict, match="file group bucket-1-of-2 in partition") as refused:
            before.commit([entry(before, "bucket-1-of-2", "delta")])
        assert refused.value.details["rule"] == "same file group"
    with client.begin(T, "upsert") as before:
        client.buckets.alter(T, merge=["bucket-1-of-2"])
        before.commit([entry(before, "bucket-1-of-4", "delta")])
    assert sum(file.kind == "delta" for file in client.plan(T)) == 3


def test_a_bucket_is_begun_once_on_whichever_side(client: Client) -> None:
    client.tables.set_properties(T, {"lakemark.conflict.policy": "row"})
    with client.begin(T, "upsert") as before, client.begin(T, "upsert") as after:
        client.buckets.alter(T, split=["bucket-1-of-2"])
        after.commit([entry(after, "bucket-3-of-4")])
        with pytest.raises(CommitConflict) as refused:
            before.commit([entry(before, "bucket-1-of-2")])
        assert refused.value.details["rule"] == "same begun file group"


def test_writers_in_flight_are_warned_early(client: Client) -> None:
    client.buckets.alter(T, split=["bucket-1-of-2"])
    with client.begin(T, "upsert", partitions=[{"p": "a"}], file_groups=["bucket-1-of-2"]):
        with pytest.raises(CommitConflict, match="is in flight"):
            client.begin(T, "upsert", partitions=[{"p": "a"}], file_groups=["bucket-3-of-4"])
        client.begin(T, "upsert", partitions=[{"p": "a"}], file_groups=["bucket-0-of-2"]).rollback("")


def test_a_base_file_shares_no_key_with_another_one(client: Client, service: Service) -> None:
    """Neither with one that is there, above or below, nor with one of the same commit; those that are taken out do not
    count, whichever request names them."""
    put(client, "bucket-0-of-2", "bucket-1-of-2")
    client.buckets.alter(T, split=["bucket-1-of-2"])
    (old,) = [file.path for file in client.plan(T) if file.file_group == "bucket-1-of-2"]
    half = ("bucket-1-of-4", "bucket-3-of-4")
    for group in ("bucket-1-of-2", "bucket-1-of-4", "bucket-0-of-1"):
        with (
            client.begin(T, "upsert") as writer,
            pytest.raises(InvalidFile, match=r"shares keys with .*version 2 of b\.t has"),
        ):
            writer.commit([entry(writer, group)])
        with client.begin(T, "upsert") as writer:
            writer.stage([entry(writer, group)])
            with pytest.raises(InvalidFile, match="shares keys with"):
                writer.commit()
            writer.rollback()
    with client.begin(T, "append") as writer, pytest.raises(InvalidFile, match=r"is appended to b\.t, which has a key"):
        writer.commit([entry(writer, "bucket-1-of-2", p="b")])
    with client.begin(T, "upsert") as writer, pytest.raises(InvalidFile, match="which this commit adds, too"):
        writer.commit([entry(writer, group, p="b") for group in ("bucket-3-of-4", "bucket-1-of-2")])
    assert client.snapshot(T).version == 2

    put(client, "bucket-1-of-8", p="b")
    with client.begin(T, "compact") as writer:
        writer.stage([entry(writer, half[0])])
        writer.remove([old])
        writer.commit([entry(writer, half[1])])
        assert writer.commit().version == 4
    with client.begin(T, "overwrite_partitions", partitions=[{"p": "a"}]) as writer:
        writer.commit([entry(writer, "bucket-0-of-1")])
    assert verify(service.store) == []


def test_a_commit_with_many_files_may_be_sent_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are staged by then. They share their keys with no file but themselves."""
    failed: list[int] = []
    submit = Batcher.submit

    def once_unavailable(self: Batcher[int, Any, Any], table_id: int, job: object) -> object:
        if isinstance(job, CommitJob) and not failed:
            failed.append(table_id)
            raise Unavailable("the store is away for a moment")
        return submit(self, table_id, job)

    monkeypatch.setattr(Batcher, "submit", once_unavailable)
    buckets = range(1 << 10, 2 << 10)
    with client.begin(T, "upsert") as writer:
        files = [
            DataFile(f"{writer.instant}/p=a/{token_hex(32)}/f", 10, 1, ("a",), file_group=group_name(n), bucket=n)
            for n in buckets
        ]
        assert writer.commit(files).version == 1
    assert failed
    assert {file.bucket for file in client.plan(T)} == set(buckets)


def test_a_cluster_writes_the_same_buckets_again(client: Client, service: Service) -> None:
    """Those that begin a bucket beside it would not see into which buckets it writes; beside a compaction they do."""
    client.buckets.alter(T, split=["bucket-0-of-2"])
    put(client, "bucket-0-of-4")
    client.buckets.alter(T, merge=["bucket-0-of-2"])
    old = client.plan(T).paths
    with client.begin(T, "cluster") as writer:
        writer.commit([entry(writer, "bucket-0-of-4")], removed=old)
    old = client.plan(T).paths
    with client.begin(T, "upsert") as other:
        with (
            client.begin(T, "cluster") as writer,
            pytest.raises(InvalidFile, match=r"CLUSTER.*use the operation COMPACT"),
        ):
            writer.commit([entry(writer, "bucket-0-of-2")], removed=old)
        with client.begin(T, "compact") as writer:
            writer.commit([entry(writer, "bucket-0-of-2")], removed=old)
        with pytest.raises(CommitConflict, match="began file group"):
            other.commit([entry(other, "bucket-2-of-4")])
    assert verify(service.store) == []


@pytest.mark.parametrize("operation", ["upsert", "append", "overwrite_partitions"])
def test_a_base_file_names_its_bucket(client: Client, operation: Operation) -> None:
    """Nobody could tell with which files it shares keys, nor which deltas change its rows."""
    with client.begin(T, operation, partitions=[{"p": "a"}]) as writer:
        for group in ("all", "bucket-1-of-2"):
            file = DataFile(f"{writer.instant}/p=a/x/f", 1, 1, ("a",), file_group=group)
            with pytest.raises(InvalidFile, match=r"names the bucket of its keys.*one file for each bucket"):
                writer.stage([file])
        writer.rollback()


def test_old_versions_restores_and_branches_need_no_directory(client: Client, service: Service) -> None:
    put(client, "bucket-0-of-2", "bucket-1-of-2")
    client.branches.create(T, "dev")
    client.buckets.alter(T, split=["bucket-1-of-2"])
    with client.begin(T, "compact") as writer:
        old = [file.path for file in client.plan(T) if file.file_group == "bucket-1-of-2"]
        writer.commit([entry(writer, "bucket-1-of-4"), entry(writer, "bucket-3-of-4")], removed=old)
    with client.begin(T, "upsert", branch="dev") as writer:
        writer.commit([entry(writer, "bucket-1-of-2", "delta")])
    groups = {"bucket-0-of-2", "bucket-1-of-2"}
    assert {file.file_group for file in client.plan(T, version=1)} == groups
    assert {file.file_group for file in client.plan(T, branch="dev")} == groups

    merged = client.branches.merge(T, "dev")
    assert {(file.kind, file.file_group) for file in client.plan(T, version=merged.version)} == {
        ("base", "bucket-0-of-2"),
        ("base", "bucket-1-of-4"),
        ("base", "bucket-3-of-4"),
        ("delta", "bucket-1-of-2"),
    }, "the delta lies on top of both halves"
    client.timeline.restore(T, 1)
    assert {file.file_group for file in client.plan(T)} == groups
    assert names(client) == ["bucket-0-of-2", "bucket-1-of-4", "bucket-3-of-4"], "where rows go from now on"
    assert verify(service.store) == []


def test_sizes_choose_what_is_split_and_merged(
    client: Client, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(service.grpc_address, capsys)
    client.tables.set_properties(T, {SPLIT: "10000"})
    put(client, "bucket-0-of-2", size=10_001)
    put(client, "bucket-1-of-2", size=2_500)
    assert client.buckets.balance(T, dry_run=True) == BucketChanges((2,), ())
    told = cli.text("tables", "buckets", T, "--balance", "--dry-run")
    assert "would change the buckets of b.t: split bucket-0-of-2" in told
    assert client.snapshot(T).version == 2
    assert "changed the buckets of b.t: split bucket-0-of-2" in cli.text("tables", "buckets", T, "--balance")
    assert "the buckets of b.t have good sizes" in cli.text("tables", "buckets", T, "--balance")
    shown = cli.json("tables", "buckets", T, "--split", "bucket-1-of-2")
    assert [(one["name"], one["files"], one["shared_files"], one["size_bytes"]) for one in shown] == [
        ("bucket-0-of-4", 1, 1, 5_000),
        ("bucket-1-of-4", 1, 1, 1_250),
        ("bucket-2-of-4", 1, 1, 5_000),
        ("bucket-3-of-4", 1, 1, 1_250),
    ]
    assert "bucket-3-of-4" in cli.text("tables", "buckets", T)
    assert cli.json("tables", "show", T)["name"] == T
    merged = {"table": T, "split": [], "merge": ["bucket-1-of-2"], "dry_run": False}
    assert cli.json("tables", "buckets", T, "--balance") == merged
    for options in (["--balance", "--split", "bucket-0-of-4"], ["--dry-run"]):
        code, _, err = cli("tables", "buckets", T, *options)
        assert code == InvalidArgument.exit_code
        assert "--balance" in err
