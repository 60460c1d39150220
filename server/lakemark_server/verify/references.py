"""The invariants of branches, tags and merges of one lake table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from lakemark_proto.store.v1.store_pb2 import BranchRecord, TagRecord, VersionRecord
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.store.keyspace import BRANCH_KEYS, BRANCHES, MAIN, MERGES, SAVEPOINTS, TAGS
from lakemark_server.timeline.branches.divergence import merged_upto
from lakemark_server.timeline.conflicts.changes import replays_of
from lakemark_server.timeline.lineage import OF_MAIN, Lineage

Versions = Mapping[str, Mapping[int, VersionRecord]]  # by branch key, then by number; a branch's own versions only


def references_of(store: Store, table_id: int) -> tuple[list[BranchRecord], list[TagRecord], list[str]]:
    """All branches, dropped ones too; all tags and savepoints; and violations between names and keys."""

    def body(tx: ReadTransaction) -> tuple[list[BranchRecord], list[TagRecord], dict[str, BranchRecord]]:
        by_key = [BranchRecord.FromString(value) for _, value in tx.get_range(*BRANCH_KEYS.range(table_id))]
        by_name = {
            str(BRANCHES.unpack(key)[-1]): BranchRecord.FromString(value)
            for key, value in tx.get_range(*BRANCHES.range(table_id))
        }
        tags = [
            TagRecord.FromString(value)
            for space in (TAGS, SAVEPOINTS)
            for _, value in tx.get_range(*space.range(table_id))
        ]
        return by_key, tags, by_name

    by_key, tags, by_name = store.read(body)
    kept = {record.name: record for record in by_key if not record.dropped}
    problems = [
        f"branch {name!r} has another record under its name than under its key"
        for name in sorted(kept.keys() | by_name.keys())
        if kept.get(name) != by_name.get(name)
    ]
    return by_key, tags, problems


def lineages(records: Iterable[BranchRecord], tell: Callable[[str], None]) -> dict[str, Lineage]:
    """Lineages by branch key. A branch whose parents do not lead to main is reported and left out."""
    by_key = {record.key: record for record in records}
    by_branch: dict[str, Lineage] = {}
    for key in by_key:
        forks: list[tuple[str, int]] = []
        at = key
        while at != MAIN and at in by_key and len(forks) <= len(by_key):
            forks.append((at, by_key[at].fork_version))
            at = by_key[at].parent_key
        if at == MAIN:
            by_branch[key] = Lineage((*forks, *OF_MAIN.forks))
        else:
            tell(f"branch {key!r} descends from {at!r}, which is not there")
    return by_branch


def check_merges(
    store: Store, table_id: int, known: Mapping[str, Lineage], versions: Versions, trimmed: Mapping[str, int]
) -> list[str]:
    """A sentence for each difference between the merges that are listed for a branch and those that versions state."""
    listed = store.read(lambda tx: {MERGES.unpack(key)[1:] for key, _ in tx.get_range(*MERGES.range(table_id))})
    wanted = {
        (branch, key, version.version, upto)
        for key, of_branch in versions.items()
        for version in of_branch.values()
        if version.HasField("merged") and version.merged.branch in known
        for branch, upto in merged_upto(
            replays_of(version),
            known[version.merged.branch].owner(version.merged.upto_version),
            version.merged.upto_version,
        ).items()
    }
    return [
        f"the list of merges of branch {merge[0]!r} and version {merge[2]!r} of {merge[1]!r} do not tell the same"
        for merge in sorted(listed ^ wanted, key=str)
        if cast(int, merge[2]) > trimmed.get(str(merge[1]), 0)
    ]


def check_references(
    branches: Iterable[BranchRecord],
    tags: Iterable[TagRecord],
    known: Mapping[str, Lineage],
    versions: Versions,
    trimmed: Mapping[str, int],
) -> list[str]:
    """A sentence for each fork, tag, merge or restore that refers to a missing version.

    ``trimmed``: up to these versions merges are no longer replayed.
    """

    def exists(key: str, version: int) -> bool:
        lineage = known.get(key)
        return lineage is not None and (version == 0 or version in versions.get(lineage.owner(version), {}))

    problems = []
    for branch in branches:
        if not exists(branch.parent_key, branch.fork_version):
            problems.append(f"branch {branch.key!r} forks at version {branch.fork_version}, which is not there")
    problems += [
        f"tag {tag.name!r} keeps version {tag.version}, which is not there"
        for tag in tags
        if not exists(tag.branch_key, tag.version)
    ]
    for key, of_branch in versions.items():
        for version in of_branch.values():
            where = f"version {version.version}" + ("" if key == MAIN else f" of branch {key!r}")
            if version.restored_version and not exists(key, version.restored_version):
                problems.append(f"{where} restores version {version.restored_version}, which is not there")
            if version.version <= trimmed.get(key, 0):
                continue
            problems += [
                f"{where} merges versions {run.after + 1} to {run.upto} of branch {run.branch!r}, not all there"
                for run in replays_of(version)
                if not all(version in versions.get(run.branch, {}) for version in range(run.after + 1, run.upto + 1))
            ]
            if version.HasField("merged") and not exists(version.merged.branch, version.merged.upto_version):
                problems.append(f"{where} merges branch {version.merged.branch!r}, which does not have what it names")
    return problems
