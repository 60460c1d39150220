"""Roles, and who has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from lakemark_core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, InvalidName, NotFound
from lakemark_proto.store.v1.grants_pb2 import PrivilegeRecord, RoleMemberRecord, RoleRecord
from lakemark_server.grants import counts
from lakemark_server.grants.objects import BUILT_IN, PUBLIC, Principal, PrincipalType
from lakemark_server.kv import ReadTransaction, Transaction, keys_below, pairs_between
from lakemark_server.store.keyspace import IDS, PRIVILEGES, ROLE_MEMBERS, ROLES, ROLES_OF
from lakemark_server.store.mutations import Mutation, Mutations

T = TypeVar("T")

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

        self._mutations.run(lambda mutation: _drop(mutation.tx, name))
        # What follows does not count any more, as no other role will have its number.
        role = Principal(PrincipalType.ROLE, name)
        of_role = [at for at, _ in keys_below(self._store, ROLE_MEMBERS, name)]
        has = [str(at[0]) for at, _ in keys_below(self._store, ROLES_OF, role.type.value, name)]
        members = [(name, Principal(PrincipalType(cast(int, kind)), str(who))) for kind, who in of_role]
        self._clear(_clear_dead_members, [*members, *((one, role) for one in has)])
        pairs = pairs_between(self._store, *PRIVILEGES.range())
        named = [role.type.value, name]
        self._clear(_clear_dead_privileges, [key for key, _ in pairs if list(PRIVILEGES.unpack(key)[5:7]) == named])

    def _clear(self, clear: Callable[[Sequence[T], Mutation], None], dead: Sequence[T]) -> None:
        for at in range(0, len(dead), _CLEARED_AT_ONCE):
            self._mutations.run(partial(clear, dead[at : at + _CLEARED_AT_ONCE]))

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
            record.role = require(tx, role).number
            if to.type is PrincipalType.ROLE:
                record.principal_role = require(tx, to.name).number
                if to.name in roles_of(tx, Principal(PrincipalType.ROLE, role), implied=False) or to.name == role:
                    raise _cycle(role, to.name)
            known = _member(tx, role, to)
            if known is not None and _lives(tx, known):
                raise AlreadyExists(f"Principal {to.name} already has the role {role}")
            if known is None:
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
            member = _member(tx, role, of)
            if member is None or not _lives(tx, member):
                raise NotFound(f"Principal {of.name} does not have the role {role}")
            if not option_only:
                _clear_member(tx, role, of)
                return
            record = member.record
            if not record.grant_option:
                raise FailedPrecondition(f"User {of.name} does not have grant option with role {role}")
            record.grant_option = False
            tx.set(ROLE_MEMBERS.key(role, of.type, of.name), record.SerializeToString())

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


def _member(tx: ReadTransaction, role: str, principal: Principal) -> Member | None:
    stored = tx.get(ROLE_MEMBERS.key(role, principal.type, principal.name))
    return None if stored is None else Member(role, principal, RoleMemberRecord.FromString(stored))


def _lives(tx: ReadTransaction, member: Member) -> bool:
    """Neither role is another one, which was created after a role of its name was dropped."""
    role = find(tx, member.role)
    if role is None or role.number != member.record.role:
        return False
    if member.principal.type is not PrincipalType.ROLE:
        return True
    having = find(tx, member.principal.name)
    return having is not None and having.number == member.record.principal_role


def _members(tx: ReadTransaction, role: str) -> list[Member]:
    members = []
    for key, value in tx.get_range(*ROLE_MEMBERS.range(role)):
        _, kind, name = ROLE_MEMBERS.unpack(key)
        principal = Principal(PrincipalType(cast(int, kind)), str(name))
        members.append(Member(role, principal, RoleMemberRecord.FromString(value)))
    return [one for one in members if _lives(tx, one)]


def _roles_of(tx: ReadTransaction, principal: Principal) -> list[Member]:
    roles = [str(ROLES_OF.unpack(key)[-1]) for key, _ in tx.get_range(*ROLES_OF.range(principal.type, principal.name))]
    members = [_member(tx, role, principal) for role in roles]
    return [one for one in members if one is not None and _lives(tx, one)]


def _drop(tx: Transaction, name: str) -> None:
    if tx.get(ROLES.key(name)) is not None:
        tx.clear(ROLES.key(name))
        counts.add(tx, counts.ROLES, -1)


def _clear_member(tx: Transaction, role: str, principal: Principal) -> None:
    tx.clear(ROLE_MEMBERS.key(role, principal.type, principal.name))
    tx.clear(ROLES_OF.key(principal.type, principal.name, role))
    counts.add(tx, counts.MEMBERS, -1)


def _clear_dead_members(members: Sequence[tuple[str, Principal]], mutation: Mutation) -> None:
    for role, principal in members:
        one = _member(mutation.tx, role, principal)
        if one is not None and not _lives(mutation.tx, one):
            _clear_member(mutation.tx, role, principal)


def _clear_dead_privileges(keys: Sequence[bytes], mutation: Mutation) -> None:
    for key, stored in zip(keys, mutation.tx.get_many(keys), strict=True):
        role = find(mutation.tx, str(PRIVILEGES.unpack(key)[6]))
        if stored is not None and (role is None or PrivilegeRecord.FromString(stored).role != role.number):
            mutation.tx.clear(key)
            counts.add(mutation.tx, counts.PRIVILEGES, -1)


def _cycle(role: str, other: str) -> InvalidArgument:
    return InvalidArgument(f"Cannot grant role {role} to {other}: {role} has the role {other} already")
