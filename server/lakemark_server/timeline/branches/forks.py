"""Branches and tags: names for lineages and for versions.

A branch is one record that says where it forked; nothing is copied. Its key is never used again, so that versions of a
dropped branch are never mistaken for those of a later one with its name.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from google.protobuf.message import Message

from lakemark_core.errors import AlreadyExists, BranchNotFound, InvalidName, LimitExceeded, NotFound
from lakemark_proto.store.v1.store_pb2 import BranchRecord, TagRecord
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.kv.keys import Space
from lakemark_server.store.keyspace import BRANCH_KEYS, BRANCHES, MAIN, TAGS
from lakemark_server.timeline.lineage import OF_MAIN, Lineage

REFERENCES_MAX: Final = 1_000
DEPTH_MAX: Final = 32
NAME_CHARS_MAX: Final = 100
_KEY_CHARS_MAX: Final = NAME_CHARS_MAX + 20
# Spark lower-cases names; `t@v12`, `t@2026-11-20t10:00:00` and `t@ro` mean other things.
_NAME: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,99}")
_TAKEN: Final = re.compile(r"v[0-9]+(\.\.v?[0-9]*)?|ro|files|bases|deltas|latest|head")

M = TypeVar("M", bound=Message)


def check_name(name: str) -> None:
    """Raises InvalidName for what cannot name a branch or a tag."""
    if not _NAME.fullmatch(name) or ".." in name or _TAKEN.fullmatch(name):
        raise InvalidName(
            f"{name[:120]!r} cannot name a branch or tag: use 1 to 100 of a-z, 0-9, '_', '-' and '.', beginning with a "
            "letter or '_'; 'v12', 'ro', 'files', 'bases', 'deltas', 'latest' and 'head' mean other things"
        )


def resolve(tx: ReadTransaction, table_id: int, name: str) -> Lineage:
    """The lineage of a branch by name ("": main). Raises BranchNotFound."""
    if name in ("", MAIN):
        return OF_MAIN
    if "#" in name:  # a key, as names of hidden tables have it
        return lineage(tx, table_id, name)
    return lineage(tx, table_id, branch(tx, table_id, name).key)


def lineage(tx: ReadTransaction, table_id: int, key: str) -> Lineage:
    """By key, of a dropped branch too. Raises BranchNotFound."""
    forks: list[tuple[str, int]] = []
    while key != MAIN:
        # No key is longer, and a longer one would not fit a key of the store.
        stored = tx.get(BRANCH_KEYS.key(table_id, key), snapshot=True) if len(key) <= _KEY_CHARS_MAX else None
        if stored is None:
            raise BranchNotFound(f"the table has no branch with key {key[:_KEY_CHARS_MAX]!r}", branch=key)
        record = BranchRecord.FromString(stored)
        forks.append((key, record.fork_version))
        key = record.parent_key
    return Lineage((*forks, *OF_MAIN.forks))


def require_kept(tx: ReadTransaction, table_id: int, key: str) -> None:
    """Raises BranchNotFound if the branch was dropped."""
    stored = tx.get(BRANCH_KEYS.key(table_id, key))
    if stored is None or BranchRecord.FromString(stored).dropped:
        raise BranchNotFound(f"branch {name_of(key)!r} was dropped", branch=name_of(key))


def new_key(name: str, instant: int) -> str:
    """``instant`` is unique in the table, so the key is never used again."""
    return f"{name}#{instant}"


def name_of(key: str) -> str:
    """The name that a branch had when it was made."""
    return key.partition("#")[0]


def branch(tx: ReadTransaction, table_id: int, name: str) -> BranchRecord:
    """Raises BranchNotFound."""
    stored = _get(tx, BRANCHES, table_id, name)
    if stored is None:
        known = ", ".join([MAIN, *(one.name for one in branches(tx, table_id)[:10])])
        raise BranchNotFound(f"the table has no branch {name[:NAME_CHARS_MAX]!r}; it has {known}", branch=name)
    return BranchRecord.FromString(stored)


def tag(tx: ReadTransaction, table_id: int, name: str) -> TagRecord:
    """Raises NotFound."""
    stored = _get(tx, TAGS, table_id, name)
    if stored is None:
        known = ", ".join(one.name for one in tags(tx, table_id)[:10]) or "none"
        raise NotFound(f"the table has no tag {name[:NAME_CHARS_MAX]!r}; it has {known}", tag=name)
    return TagRecord.FromString(stored)


def _get(tx: ReadTransaction, space: Space, table_id: int, name: str) -> bytes | None:
    """What is stored under a name. One that is too long is not looked up, since it would not fit a key of the store."""
    return tx.get(space.key(table_id, name)) if len(name) <= NAME_CHARS_MAX else None


def branches(tx: ReadTransaction, table_id: int) -> list[BranchRecord]:
    """Without main, in order of name."""
    return _all(tx, *BRANCHES.range(table_id), BranchRecord)


def all_branches(tx: ReadTransaction, table_id: int) -> list[BranchRecord]:
    """Without main, dropped ones too, in order of key."""
    return _all(tx, *BRANCH_KEYS.range(table_id), BranchRecord)


def tags(tx: ReadTransaction, table_id: int) -> list[TagRecord]:
    """In order of name."""
    return _all(tx, *TAGS.range(table_id), TagRecord)


def _all(tx: ReadTransaction, begin: bytes, end: bytes, kind: type[M]) -> list[M]:
    return [kind.FromString(value) for _, value in tx.get_range(begin, end)]


def check_free(tx: ReadTransaction, table_id: int, name: str) -> None:
    """Raises InvalidName, AlreadyExists (branches and tags share their names), LimitExceeded."""
    check_name(name)
    if name == MAIN or _get(tx, BRANCHES, table_id, name) is not None:
        raise AlreadyExists(f"the table already has a branch {name!r}; drop it first or choose another name")
    if _get(tx, TAGS, table_id, name) is not None:
        raise AlreadyExists(f"the table already has a tag {name!r}; drop it first or choose another name")
    if len(branches(tx, table_id)) + len(tags(tx, table_id)) >= REFERENCES_MAX:
        raise LimitExceeded(f"a table has at most {REFERENCES_MAX} branches and tags; drop some first")


def put_branch(tx: Transaction, table_id: int, record: BranchRecord, parent: Lineage) -> Lineage:
    """``parent`` is that of the version it forks from. Raises LimitExceeded."""
    if len(parent.forks) >= DEPTH_MAX:
        raise LimitExceeded(f"branches of branches are at most {DEPTH_MAX} deep; merge some first")
    value = record.SerializeToString()
    tx.set(BRANCHES.key(table_id, record.name), value)
    tx.set(BRANCH_KEYS.key(table_id, record.key), value)
    return Lineage(((record.key, record.fork_version), *parent.forks))


def put_tag(tx: Transaction, table_id: int, record: TagRecord) -> None:
    tx.set(TAGS.key(table_id, record.name), record.SerializeToString())


def named(tx: ReadTransaction, table_id: int, name: str) -> BranchRecord | TagRecord:
    """The branch or tag of this name. Raises BranchNotFound."""
    return tag(tx, table_id, name) if _get(tx, TAGS, table_id, name) is not None else branch(tx, table_id, name)


def require_kind(tx: ReadTransaction, table_id: int, name: str, kind: int) -> None:
    """Branches and tags share their names, but whoever means one does not mean the other.

    Raises BranchNotFound, NotFound that say what the name is instead; nothing of an unspecified kind.
    """
    if kind == pb.TAG:
        if name == MAIN or _get(tx, BRANCHES, table_id, name) is not None:
            raise NotFound(f"{name!r} is a branch of the table, not a tag", tag=name)
        tag(tx, table_id, name)
    if kind == pb.BRANCH:
        if _get(tx, TAGS, table_id, name) is not None:
            raise BranchNotFound(f"{name!r} is a tag of the table, not a branch", branch=name)
        branch(tx, table_id, name)


def drop(tx: Transaction, table_id: int, name: str) -> BranchRecord | TagRecord:
    """The record of what was dropped; a branch's versions stay, since merges name them. Raises BranchNotFound."""
    record = named(tx, table_id, name)
    if isinstance(record, TagRecord):
        tx.clear(TAGS.key(table_id, name))
        return record
    tx.clear(BRANCHES.key(table_id, name))
    record.dropped = True
    tx.set(BRANCH_KEYS.key(table_id, record.key), record.SerializeToString())
    return record
