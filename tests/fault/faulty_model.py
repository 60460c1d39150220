"""A simple model of the catalog and the timeline, to compare the faulty store with.

Writers of a table collide if one of them overwrites the whole table; appends never collide.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from lakemark_core.errors import (
    AlreadyExists,
    CommitConflict,
    DatabaseNotFound,
    InstantStateError,
    InvalidFile,
    LakemarkError,
    NotEmpty,
    TableNotFound,
    VersionNotFound,
)

TIMEOUT_MS = 100
HOME = "default"

TableKey = tuple[str, str]  # database, name


@dataclass
class Instant:
    overwrites: bool
    read_version: int
    deadline: int
    state: str = "REQUESTED"  # INFLIGHT, COMPLETED, ROLLED_BACK
    staged: list[str] = field(default_factory=list)
    requests: int = 0
    refused: bool = False
    sealed: bool = False  # a failed commit had already added its files

    @property
    def open(self) -> bool:
        return self.state in {"REQUESTED", "INFLIGHT"}


@dataclass
class Table:
    uid: str  # distinguishes it from earlier and later tables of this name
    label: str
    directory: str = ""  # its directory, which survives renames and drops; reported by the service
    number: int = 0  # its id, reported by the service
    dropped_at: int = 0
    instants: dict[int, Instant] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)  # instants by version
    contents: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    last: int = 0

    def lost(self, writer: Instant) -> bool:
        """Whether a commit since the writer's read version excludes it."""
        return any(writer.overwrites or self.instants[one].overwrites for one in self.commits[writer.read_version :])

    def blocked(self, writer: Instant, now: int) -> bool:
        """Whether an open writer excludes it."""
        return any(
            one is not writer
            and one.state == "INFLIGHT"
            and one.deadline >= now
            and (writer.overwrites or one.overwrites)
            for one in self.instants.values()
        )


class Model:
    """Each method changes the model as the operation should, and returns or raises what it should.

    ``inline``: commits do not stage their files before, however many there are.
    """

    def __init__(self, inline: bool) -> None:
        self.inline = inline
        self.now = 1_800_000_000_000
        self.databases: set[str] = {HOME}
        self.tables: dict[TableKey, Table] = {}
        self.dropped: list[tuple[TableKey, Table]] = []  # tables that can be brought back, in the order of drops

    def copy(self) -> Model:
        return copy.deepcopy(self)

    # -- the catalog ---------------------------------------------------------------------------------------------------

    def create_database(self, name: str) -> None:
        if name in self.databases:
            raise AlreadyExists("")
        self.databases.add(name)

    def drop_database(self, name: str) -> None:
        self.check_database(name)
        if any(database == name for database, _ in self.tables):
            raise NotEmpty("")
        self.databases.remove(name)

    def create_table(self, key: TableKey, label: str) -> None:
        self.check_database(key[0])
        if key in self.tables:
            raise AlreadyExists("")
        self.tables[key] = Table(label, label)

    def drop_table(self, key: TableKey, at_once: bool) -> None:
        table = self.table(key)
        if not at_once:
            table.dropped_at = self.now
            self.dropped.append((key, table))
        del self.tables[key]

    def undrop_table(self, key: TableKey, target: TableKey) -> None:
        found = [place for place, (name, _) in enumerate(self.dropped) if name == key]
        if not found:
            raise TableNotFound("")
        self.check_database(target[0])
        if target in self.tables:
            raise AlreadyExists("")
        _, self.tables[target] = self.dropped.pop(found[-1])

    def purge_table(self, key: TableKey, number: int) -> None:
        found = [place for place, (name, table) in enumerate(self.dropped) if (name, table.number) == (key, number)]
        if not found:
            raise TableNotFound("")
        del self.dropped[found[0]]

    def everything(self) -> list[Table]:
        """All tables, including dropped ones that can be brought back."""
        return [*self.tables.values(), *(table for _, table in self.dropped)]

    def rename_table(self, key: TableKey, target: TableKey) -> None:
        table = self.table(key)
        self.check_database(target[0])
        if target in self.tables:
            raise AlreadyExists("")
        del self.tables[key]
        self.tables[target] = table

    def set_label(self, key: TableKey, label: str) -> None:
        self.table(key).label = label

    # -- the timeline --------------------------------------------------------------------------------------------------

    def open(self, key: TableKey, overwrites: bool, start: bool) -> int:
        table = self.table(key)
        writer = Instant(overwrites, len(table.commits), self.now + TIMEOUT_MS)
        if start:
            if table.blocked(writer, self.now):
                raise CommitConflict("")
            writer.state = "INFLIGHT"
        table.last = max(self.now, table.last + 1)
        table.instants[table.last] = writer
        return table.last

    def start(self, key: TableKey, instant: int) -> None:
        table, writer = self.writer(key, instant)
        if writer.state == "INFLIGHT":
            return
        self.require(writer, "REQUESTED")
        if table.lost(writer) or table.blocked(writer, self.now):
            raise CommitConflict("")
        writer.state, writer.deadline = "INFLIGHT", self.now + TIMEOUT_MS

    def stage(self, key: TableKey, instant: int, number: int, paths: list[str]) -> int:
        _, writer = self.writer(key, instant)
        if writer.state != "INFLIGHT":
            raise CommitConflict("") if writer.refused else InstantStateError("")
        if writer.sealed:
            raise InstantStateError("")
        if number > writer.requests:
            writer.requests = number
            writer.staged += paths
        return len(writer.staged)

    def commit(self, key: TableKey, instant: int, paths: list[str]) -> int:
        table, writer = self.writer(key, instant)
        if writer.state == "COMPLETED":
            return table.commits.index(instant) + 1
        writer.sealed |= bool(paths) and not self.inline and writer.state == "INFLIGHT"
        self.require(writer, "INFLIGHT")
        if table.lost(writer):
            writer.state, writer.refused = "ROLLED_BACK", True
            raise CommitConflict("")
        writer.state = "COMPLETED"
        table.commits.append(instant)
        before = frozenset() if writer.overwrites else table.contents[-1]
        table.contents.append(before | {*writer.staged, *paths})
        return len(table.commits)

    def rollback(self, key: TableKey, instant: int) -> None:
        _, writer = self.writer(key, instant)
        if writer.state == "COMPLETED":
            raise InstantStateError("")
        writer.state = "ROLLED_BACK"

    def heartbeat(self, key: TableKey, instants: list[int]) -> set[int]:
        """Returns the instants that are lost."""
        table = self.table(key)
        mine = {number: table.instants[number] for number in instants if number in table.instants}
        living = [number for number, one in mine.items() if one.open and one.deadline >= self.now]
        for number in living:
            mine[number].deadline = self.now + TIMEOUT_MS
        return {*instants} - {*living}

    def sweep(self) -> None:
        for table in self.everything():
            for one in table.instants.values():
                if one.open and one.deadline < self.now:
                    one.state = "ROLLED_BACK"

    def read(self, key: TableKey, version: int) -> list[str]:
        contents = self.table(key).contents
        if version >= len(contents):
            raise VersionNotFound("")
        return sorted(contents[version])

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def check_database(self, name: str) -> None:
        if name not in self.databases:
            raise DatabaseNotFound("")

    def table(self, key: TableKey) -> Table:
        self.check_database(key[0])
        if key not in self.tables:
            raise TableNotFound("")
        return self.tables[key]

    def writer(self, key: TableKey, instant: int) -> tuple[Table, Instant]:
        table = self.table(key)
        if instant not in table.instants:
            raise TableNotFound("")  # InstantNotFound: the table is another one of the same name
        return table, table.instants[instant]

    def require(self, writer: Instant, state: str) -> None:
        if writer.refused:
            raise CommitConflict("")
        if writer.state != state or writer.deadline < self.now:
            raise InstantStateError("")

    def view(self) -> dict[str, object]:
        """The visible state, in a form to which the store's content can be converted."""
        found: dict[str, object] = {"databases": sorted(self.databases)}
        named = [(f"{database}.{name}", table) for (database, name), table in self.tables.items()]
        gone = [(f"dropped {database}.{name} {table.label}", table) for (database, name), table in self.dropped]
        for name, table in [*named, *gone]:
            found[name] = {
                "label": table.label,
                "instants": {
                    number: (one.state, one.deadline if one.open else None) for number, one in table.instants.items()
                },
                "commits": table.commits,
                "content": sorted(table.contents[-1]),
            }
        return found


def outcome_of(error: LakemarkError) -> str:
    """The error as a client sees it. Everything that is missing counts alike, whatever it is."""
    if isinstance(error, InvalidFile):  # not the files of an earlier attempt to commit the instant
        return InstantStateError.__name__
    for kind in (CommitConflict, InstantStateError, AlreadyExists, NotEmpty):
        if isinstance(error, kind):
            return kind.__name__
    return "NotFound" if error.grpc_status == "NOT_FOUND" else type(error).__name__
