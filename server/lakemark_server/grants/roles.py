"""Roles, and who has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from lakemark_core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, InvalidName, NotFound
from lakemark_proto.store.v1.grants_pb2 import PrivilegeRecord, RoleMemberRecord, RoleRecord
from lakemark_server.grants import counts
from lakemark_server.grants.objects import BUILT_IN, PUBLIC, Principal, PrincipalType
from lakemark_server.kv import ReadTransaction, Transaction, keys_below, pairs_between
from lakemark_server.store.keyspace import IDS, PRIVILEGES, ROLE_MEMBERS, ROLES, ROLES_OF
from lakemark_server.store.mutations import Mutation, Mutations

NAME_CHARS_MAX: Final = 128
_CLEARED_AT_ONCE: Final = 500
_NUMBERS: Final = IDS.key("role")


class Member(NamedTuple):
    """A principal that has a role."""

    role: str
    principal: Principal
    record: RoleMemberRecord


class Roles:
    """Thread-safe. The roles ``admin`` and ``public`` are always there."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def create(self, name: str, owner: str) -> None:
        """Raises AlreadyExists, InvalidName, LimitExceeded."""
        check_name("role", name)

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            if find(tx, name) is not None:
                raise AlreadyExists(f"Role {name} already exists.", role=name)
            counts.take(tx, counts.ROLES, 1)
            number = int.from_bytes(tx.get(_NUMBERS) or b"", "little") + 1
            tx.set(_NUMBERS, number.to_bytes(8, "little"))
            record = RoleRecord(owner=owner[:NAME_CHARS_MAX], created_ms=mutation.now_ms, number=number)
            tx.set(ROLES.key(name), record.SerializeToString())

        self._mutations.run(body)

    def drop(self, name: str) -> None:
        """Takes it from all who have it, and its privileges with it. Nothing happens if there is no such role.

        Raises FailedPrecondition for ``admin`` and ``public``.
        """
        if name in BUILT_IN:
            raise FailedPrecondition("public,admin roles can't be dropped.")

        def body(mutation: Mutation) -> None:
            tx, role = mutation.tx, Principal(PrincipalType.ROLE, name)
            if tx.get(ROLES.key(name)) is None:
                return
            tx.clear(ROLES.key(name))
            for one in [*_members(tx, name), *_roles_of(tx, role)]:
                _clear_member(tx, one.role, one.principal)
            counts.add(tx, counts.ROLES, -1)

        self._mutations.run(body)
        self._clear_privileges(name)

    def _clear_privileges(self, name: str) -> None:
        """They do not count any more, since a role of this name that is created later has another number."""
        role = [PrincipalType.ROLE.value, name]
        pairs = pairs_between(self._store, *PRIVILEGES.range())
        keys = [key for key, _ in pairs if list(PRIVILEGES.unpack(key)[5:7]) == role]
        for at in range(0, len(keys), _CLEARED_AT_ONCE):
            self._mutations.run(partial(_clear_dead, name, keys[at : at + _CLEARED_AT_ONCE]))

    def names(self) -> list[str]:
        """All roles, in order."""
        return sorted({*BUILT_IN, *(str(at[0]) for at, _ in keys_below(self._store, ROLES))})

    def grant(self, role: str, to: Principal, record: RoleMemberRecord) -> None:
        """``record``: by whom; its time is filled in.

        Raises NotFound for a role, AlreadyExists, FailedPrecondition for ``public`` and for cycles, LimitExceeded.
        """
        if role == PUBLIC:
            raise FailedPrecondition(
                "No user can be added to public. Since all users implicitly belong to public role."
            )
        check_name("principal", to.name)

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            require(tx, role)
            if to.type is PrincipalType.ROLE:
                require(tx, to.name)
                if to.name in roles_of(tx, Principal(PrincipalType.ROLE, role), implied=False) or to.name == role:
                    raise _cycle(role, to.name)
            if tx.get(ROLE_MEMBERS.key(role, to.type, to.name)) is not None:
                raise AlreadyExists(f"Principal {to.name} already has the role {role}")
            counts.take(tx, counts.MEMBERS, 1)
            record.granted_ms = mutation.now_ms
            tx.set(ROLE_MEMBERS.key(role, to.type, to.name), record.SerializeToString())
            tx.set(ROLES_OF.key(to.type, to.name, role), b"")

        self._mutations.run(body)

    def revoke(self, role: str, of: Principal, *, option_only: bool = False) -> None:
        """With ``option_only`` the principal keeps the role, but may not grant it any more.

        Raises NotFound, FailedPrecondition for ``public`` and if there is no such option.
        """
        if role == PUBLIC:
            raise FailedPrecondition("public role can't be revoked.")

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            require(tx, role)
            key = ROLE_MEMBERS.key(role, of.type, of.name)
            stored = tx.get(key)
            if stored is None:
                raise NotFound(f"Principal {of.name} does not have the role {role}")
            if not option_only:
                _clear_member(tx, role, of)
                return
            record = RoleMemberRecord.FromString(stored)
            if not record.grant_option:
                raise FailedPrecondition(f"User {of.name} does not have grant option with role {role}")
            record.grant_option = False
            tx.set(key, record.SerializeToString())

        self._mutations.run(body)

    def members(self, role: str) -> list[Member]:
        """Who has the role, directly. Raises NotFound."""

        def body(tx: ReadTransaction) -> list[Member]:
            require(tx, role)
            return _members(tx, role)

        return self._store.read(body)

    def of(self, principal: Principal) -> list[tuple[Member, RoleRecord]]:
        """The roles that the principal has directly, without ``public``."""

        def body(tx: ReadTransaction) -> list[tuple[Member, RoleRecord]]:
            return [(one, find(tx, one.role) or RoleRecord()) for one in _roles_of(tx, principal)]

        return self._store.read(body)


def check_name(kind: str, name: str) -> None:
    """Raises InvalidName, if it is empty or too long."""
    if not name or len(name) > NAME_CHARS_MAX:
        raise InvalidName(f"a {kind} name has 1 to {NAME_CHARS_MAX} characters, not {len(name)}")


def find(tx: ReadTransaction, name: str) -> RoleRecord | None:
    """The role, or None."""
    stored = tx.get(ROLES.key(name)) if len(name) <= NAME_CHARS_MAX else None
    if stored is None:
        return RoleRecord(owner=name) if name in BUILT_IN else None
    return RoleRecord.FromString(stored)


def require(tx: ReadTransaction, name: str) -> RoleRecord:
    """Raises NotFound."""
    record = find(tx, name)
    if record is None:
        raise NotFound(f"Role {name} does not exist", role=name)
    return record


def roles_of(tx: ReadTransaction, principal: Principal, *, implied: bool = True) -> list[str]:
    """All roles that the principal has, also by others of its roles; ``implied``: a user has ``public``, too."""
    roles = [PUBLIC] if implied and principal.type is PrincipalType.USER else []
    ahead = [principal]
    while ahead:
        for one in _roles_of(tx, ahead.pop()):
            if one.role not in roles:
                roles.append(one.role)
                ahead.append(Principal(PrincipalType.ROLE, one.role))
    return roles


def _members(tx: ReadTransaction, role: str) -> list[Member]:
    members = []
    for key, value in tx.get_range(*ROLE_MEMBERS.range(role)):
        _, kind, name = ROLE_MEMBERS.unpack(key)
        principal = Principal(PrincipalType(int(kind or 0)), str(name))
        members.append(Member(role, principal, RoleMemberRecord.FromString(value)))
    return members


def _roles_of(tx: ReadTransaction, principal: Principal) -> list[Member]:
    roles = [str(ROLES_OF.unpack(key)[-1]) for key, _ in tx.get_range(*ROLES_OF.range(principal.type, principal.name))]
    stored = tx.get_many([ROLE_MEMBERS.key(role, principal.type, principal.name) for role in roles])
    records = [RoleMemberRecord.FromString(value or b"") for value in stored]
    return [Member(role, principal, record) for role, record in zip(roles, records, strict=True)]


def _clear_member(tx: Transaction, role: str, principal: Principal) -> None:
    tx.clear(ROLE_MEMBERS.key(role, principal.type, principal.name))
    tx.clear(ROLES_OF.key(principal.type, principal.name, role))
    counts.add(tx, counts.MEMBERS, -1)


def _clear_dead(name: str, keys: Sequence[bytes], mutation: Mutation) -> None:
    """Removes privileges of an earlier role of the name."""
    role = find(mutation.tx, name)
    for key, stored in zip(keys, mutation.tx.get_many(keys), strict=True):
        if stored is not None and (role is None or PrivilegeRecord.FromString(stored).role != role.number):
            mutation.tx.clear(key)
            counts.add(mutation.tx, counts.PRIVILEGES, -1)


def _cycle(role: str, other: str) -> InvalidArgument:
    return InvalidArgument(f"Cannot grant role {role} to {other}: {role} has the role {other} already")
