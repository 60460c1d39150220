"""Privileges of principals on objects. They belong to names: ``object_names`` keeps them with a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from lakemark_core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, LimitExceeded, NotFound
from lakemark_proto.store.v1.grants_pb2 import PrivilegeRecord
from lakemark_server.grants import counts
from lakemark_server.grants.objects import GrantObject, Principal, PrincipalType, Privilege
from lakemark_server.grants.roles import NAME_CHARS_MAX, check_name, find, require, roles_of
from lakemark_server.kv import KeyValue, ReadTransaction, Transaction, pairs_between
from lakemark_server.store.keyspace import PRIVILEGES
from lakemark_server.store.mutations import Mutation, Mutations

OF_REQUEST_MAX: Final = 1_000
PARTITION_CHARS_MAX: Final = 2_000

Exists = Callable[[ReadTransaction, GrantObject], None]
"""Raises NotFound if there is no such object."""


class Granted(NamedTuple):
    """A privilege, and how it was granted."""

    privilege: Privilege
    record: PrivilegeRecord


class Privileges:
    """Thread-safe. ``exists`` says whether there is what a privilege is to be granted on."""

    def __init__(self, mutations: Mutations, exists: Exists) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._exists = exists

    def grant(self, granted: Sequence[Granted]) -> None:
        """Grants all or none; times are filled in. Raises AlreadyExists, NotFound, InvalidArgument, LimitExceeded."""
        _check(granted)

        def body(mutation: Mutation) -> None:
            for one in granted:
                if _find(mutation.tx, one.privilege) is not None:
                    raise AlreadyExists(f"{one.privilege.name} is already granted by {one.privilege.grantor}")
                self._put(mutation, one)

        self._mutations.run(body)

    def revoke(self, privileges: Sequence[Privilege], *, option_only: bool = False) -> None:
        """Revokes all or none, whoever has granted them. With ``option_only`` they stay, but may not be granted on.

        Raises NotFound, FailedPrecondition if there is no such option, InvalidArgument, LimitExceeded.
        """
        _check([Granted(one, PrivilegeRecord()) for one in privileges])

        def body(mutation: Mutation) -> None:
            for one in privileges:
                _revoke(mutation.tx, one, option_only=option_only)

        self._mutations.run(body)

    def refresh(self, scope: GrantObject, authorizer: str, granted: Sequence[Granted]) -> None:
        """What the authorizer has granted on the object becomes ``granted``. For a column: of any column of the table.

        Raises NotFound, InvalidArgument, LimitExceeded.
        """
        _check(granted)
        around = scope._replace(column="")

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            wanted = {one.privilege: one for one in granted}
            for one in _within(tx, around):
                there = one.privilege
                same = bool(there.object.column) == bool(scope.column) and there.object._replace(column="") == around
                if same and there.authorizer == authorizer and wanted.pop(there, None) is None:
                    tx.clear(_key(there))
                    counts.add(tx, counts.PRIVILEGES, -1)
            for one in wanted.values():
                if _find(tx, one.privilege) is None:
                    self._put(mutation, one)

        self._mutations.run(body)

    def of_object(self, at: GrantObject, principal: Principal | None = None) -> list[Granted]:
        """What is granted on exactly this object, to one principal or to all."""
        granted = self._store.read(lambda tx: list(_living(tx, _within(tx, at, principal))))
        return [one for one in granted if one.privilege.object == at]

    def everywhere(self, principal: Principal | None = None) -> Iterator[Granted]:
        """What is granted on any object, to one principal or to all. Reads all privileges, page by page."""
        for pair in pairs_between(self._store, *PRIVILEGES.range()):
            one = _granted(pair)
            if principal in (None, one.privilege.principal):
                yield from self._store.read(lambda tx, one=one: list(_living(tx, [one])))  # type: ignore[misc]

    def seen_by(self, at: GrantObject, user: Principal, groups: Iterable[Principal]) -> list[Granted]:
        """What is granted on exactly this object to the user, to a group, or to a role of the user."""

        def body(tx: ReadTransaction) -> list[Granted]:
            roles = [Principal(PrincipalType.ROLE, role) for role in roles_of(tx, user)]
            return [one for who in (user, *groups, *roles) for one in _living(tx, _within(tx, at, who))]

        return [one for one in self._store.read(body) if one.privilege.object == at]

    def _put(self, mutation: Mutation, one: Granted) -> None:
        tx, principal = mutation.tx, one.privilege.principal
        self._exists(tx, one.privilege.object)
        record = PrivilegeRecord()
        record.CopyFrom(one.record)
        record.granted_ms = mutation.now_ms
        if principal.type is PrincipalType.ROLE:
            record.role = require(tx, principal.name).number
        counts.take(tx, counts.PRIVILEGES, 1)
        tx.set(_key(one.privilege), record.SerializeToString())


def _key(one: Privilege) -> bytes:
    who = one.principal
    return PRIVILEGES.key(*one.object, who.type.value, who.name, one.name, one.grantor, one.authorizer)


def _granted(pair: KeyValue) -> Granted:
    items = PRIVILEGES.unpack(pair[0])
    principal = Principal(PrincipalType(cast(int, items[5])), str(items[6]))
    at = GrantObject(*map(str, items[:5]))
    return Granted(Privilege(at, principal, *map(str, items[7:])), PrivilegeRecord.FromString(pair[1]))


def _find(tx: ReadTransaction, one: Privilege) -> PrivilegeRecord | None:
    stored = tx.get(_key(one))
    granted = None if stored is None else Granted(one, PrivilegeRecord.FromString(stored))
    return granted.record if granted and _lives(tx, granted) else None


def _within(tx: ReadTransaction, at: GrantObject, principal: Principal | None = None) -> Iterator[Granted]:
    """What is granted on the object; without a column, on its columns, too, unless for one principal."""
    items: list[str | int] = list(at)
    if principal is not None:
        items += [principal.type.value, principal.name]
    elif not at.column:
        items.pop()
    return map(_granted, tx.get_range(*PRIVILEGES.range(*items)))


def _living(tx: ReadTransaction, granted: Iterable[Granted]) -> Iterator[Granted]:
    return (one for one in granted if _lives(tx, one))


def _lives(tx: ReadTransaction, one: Granted) -> bool:
    """A role that was created anew has no privileges of the earlier one."""
    if one.privilege.principal.type is not PrincipalType.ROLE:
        return True
    role = find(tx, one.privilege.principal.name)
    return role is not None and role.number == one.record.role


def _revoke(tx: Transaction, asked: Privilege, *, option_only: bool) -> None:
    candidates = [
        one for one in _living(tx, _within(tx, asked.object, asked.principal)) if one.privilege.name == asked.name
    ]
    # The grant of the one who revokes it comes first, as there may be one of somebody else, too.
    candidates.sort(key=lambda one: one.privilege.grantor != asked.grantor)
    if not candidates:
        raise NotFound(f"No grant of {asked.name} to {asked.principal.name} on {_label(asked.object)} was found")
    privilege, record = candidates[0]
    if not option_only:
        tx.clear(_key(privilege))
        counts.add(tx, counts.PRIVILEGES, -1)
        return
    if not record.grant_option:
        raise FailedPrecondition(f"{asked.principal.name} has no grant option with {asked.name}")
    record.grant_option = False
    tx.set(_key(privilege), record.SerializeToString())


def _label(at: GrantObject) -> str:
    return ".".join(filter(None, at[1:])) or "the metastore"


def _check(granted: Sequence[Granted]) -> None:
    if len(granted) > OF_REQUEST_MAX:
        raise LimitExceeded(f"{len(granted):,} privileges in one request; at most {OF_REQUEST_MAX:,}: divide it")
    for one in granted:
        privilege = one.privilege
        check_name("principal", privilege.principal.name)
        at = privilege.object
        if (at.table and not at.database) or ((at.partition or at.column) and not at.table):
            raise InvalidArgument(f"{at} names no object")
        short = (*at[:3], at.column, privilege.name, privilege.grantor, privilege.authorizer)
        if max(map(len, short)) > NAME_CHARS_MAX or len(at.partition) > PARTITION_CHARS_MAX:
            raise InvalidArgument(f"a name is too long: {NAME_CHARS_MAX} characters are allowed")
