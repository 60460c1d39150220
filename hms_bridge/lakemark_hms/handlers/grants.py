"""Roles and privileges: stored and answered, not enforced."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from lakemark_core.errors import InvalidArgument
from lakemark_core.types import parse_partition_name
from lakemark_hms.errors import NotGiven
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Call
from lakemark_proto.store.v1.grants_pb2 import PrivilegeRecord, RoleMemberRecord
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_server.grants.objects import PUBLIC, GrantObject, Principal, PrincipalType, Privilege
from lakemark_server.grants.privileges import Granted
from lakemark_server.grants.roles import Member
from lakemark_thrift.ttypes import (
    GetPrincipalsInRoleResponse,
    GetRoleGrantsForPrincipalResponse,
    GrantRevokePrivilegeResponse,
    GrantRevokeRoleResponse,
    GrantRevokeType,
    HiveObjectPrivilege,
    HiveObjectRef,
    HiveObjectType,
    PrincipalPrivilegeSet,
    PrivilegeGrantInfo,
    Role,
    RolePrincipalGrant,
)

T = TypeVar("T", str, list[str])

_PRINCIPAL_TYPES: Final = frozenset(PrincipalType)


class Grants(Subject, title="Roles and privileges"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._roles = services.grants.roles
        self._privileges = services.grants.privileges

    # -- roles --------------------------------------------------------------------------------------------------------

    @method("create_role", Rank.WRITE)
    def create_role(self, call: Call) -> bool:
        role = call.args.role
        self._roles.create(role.roleName or "", role.ownerName or "")
        return True

    @method("drop_role", Rank.WRITE)
    def drop_role(self, call: Call) -> bool:
        self._roles.drop(call.args.role_name or "")
        return True

    @method("get_role_names", Rank.READ)
    def role_names(self, _call: Call) -> list[str]:
        return self._roles.names()

    @method("list_roles", Rank.READ)
    def list_roles(self, call: Call) -> list[Role]:
        principal = _principal(call.args.principal_type, call.args.principal_name)
        roles = [
            Role(roleName=member.role, createTime=record.created_ms // 1_000, ownerName=record.owner)
            for member, record in self._roles.of(principal)
        ]
        if principal.type is PrincipalType.USER:
            roles.append(Role(roleName=PUBLIC, createTime=0, ownerName=PUBLIC))
        return roles

    @method("grant_role", Rank.WRITE)
    def grant_role(self, call: Call) -> bool:
        args = call.args
        self._grant_role(args.role_name, args, bool(args.grant_option), args.principal_type, args.principal_name, call)
        return True

    @method("revoke_role", Rank.WRITE)
    def revoke_role(self, call: Call) -> bool:
        args = call.args
        self._roles.revoke(args.role_name or "", _principal(args.principal_type, args.principal_name))
        return True

    @method("grant_revoke_role", Rank.WRITE)
    def grant_revoke_role(self, call: Call) -> GrantRevokeRoleResponse:
        """To revoke with the grant option revokes only that option."""
        request = call.args.request
        option = bool(request.grantOption)
        if _is_grant(request.requestType):
            self._grant_role(request.roleName, request, option, request.principalType, request.principalName, call)
        else:
            principal = _principal(request.principalType, request.principalName)
            self._roles.revoke(request.roleName or "", principal, option_only=option)
        return GrantRevokeRoleResponse(success=True)

    def _grant_role(
        self, role: str | None, by: Any, option: bool, principal_type: int, principal: str | None, call: Call
    ) -> None:
        record = RoleMemberRecord(
            grantor=by.grantor or call.session.user or "",
            grantor_type=by.grantorType or PrincipalType.USER,
            grant_option=option,
        )
        self._roles.grant(role or "", _principal(principal_type, principal), record)

    @method("get_principals_in_role", Rank.READ)
    def principals_in_role(self, call: Call) -> GetPrincipalsInRoleResponse:
        members = self._roles.members(call.args.request.roleName or "")
        return GetPrincipalsInRoleResponse(principalGrants=list(map(_role_grant, members)))

    @method("get_role_grants_for_principal", Rank.READ)
    def role_grants(self, call: Call) -> GetRoleGrantsForPrincipalResponse:
        request = call.args.request
        principal = _principal(request.principal_type, request.principal_name)
        grants = [_role_grant(member) for member, _ in self._roles.of(principal)]
        if principal.type is PrincipalType.USER:
            grants.append(_role_grant(Member(PUBLIC, principal, RoleMemberRecord())))
        return GetRoleGrantsForPrincipalResponse(principalGrants=grants)

    # -- privileges ---------------------------------------------------------------------------------------------------

    @method("grant_privileges", Rank.WRITE)
    def grant(self, call: Call) -> bool:
        self._privileges.grant(self._granted(call.args.privileges, call))
        return True

    @method("revoke_privileges", Rank.WRITE)
    def revoke(self, call: Call) -> bool:
        self._privileges.revoke([one.privilege for one in self._granted(call.args.privileges, call)])
        return True

    @method("grant_revoke_privileges", Rank.WRITE)
    def grant_revoke(self, call: Call) -> GrantRevokePrivilegeResponse:
        request = call.args.request
        granted = self._granted(request.privileges, call)
        if _is_grant(request.requestType):
            self._privileges.grant(granted)
        else:
            revoked = [one.privilege for one in granted]
            self._privileges.revoke(revoked, option_only=bool(request.revokeGrantOption))
        return GrantRevokePrivilegeResponse(success=True)

    @method("refresh_privileges", Rank.WRITE)
    def refresh(self, call: Call) -> GrantRevokePrivilegeResponse:
        args = call.args
        if args.grantRequest is None:
            raise NotGiven("refresh_privileges came without the privileges that hold from now on (grantRequest)")
        at = self._object(args.objToRefresh, any_column=True)
        self._privileges.refresh(at, args.authorizer or "", self._granted(args.grantRequest.privileges, call))
        return GrantRevokePrivilegeResponse(success=True)

    @method("list_privileges", Rank.READ)
    def listed(self, call: Call) -> list[HiveObjectPrivilege]:
        """Without an object, all that the principal has; of an object without a name, all of its kind; without a
        principal, what anybody has on the object."""
        args = call.args
        principal = None
        if args.principal_name:
            principal = _principal(args.principal_type, args.principal_name)
        ref = args.hiveObject
        kind = ref.objectType if ref is not None else None
        if kind is None or (kind != HiveObjectType.GLOBAL and not ref.dbName):
            everything = self._privileges.everywhere(principal)
            return [_hive_privilege(one) for one in everything if kind in (None, _kind(one.privilege.object))]
        return list(map(_hive_privilege, self._privileges.of_object(self._object(ref), principal)))

    @method("get_privilege_set", Rank.READ)
    def privilege_set(self, call: Call) -> PrincipalPrivilegeSet:
        """What the user, the groups and the user's roles have on the object."""
        args = call.args
        user = Principal(PrincipalType.USER, args.user_name or "")
        groups = [Principal(PrincipalType.GROUP, name) for name in args.group_names or ()]
        sets: dict[PrincipalType, dict[str, list[PrivilegeGrantInfo]]] = {kind: {} for kind in PrincipalType}
        for one in self._privileges.seen_by(self._object(args.hiveObject), user, groups):
            principal = one.privilege.principal
            sets[principal.type].setdefault(principal.name, []).append(_info(one))
        return PrincipalPrivilegeSet(
            userPrivileges=sets[PrincipalType.USER],
            groupPrivileges=sets[PrincipalType.GROUP],
            rolePrivileges=sets[PrincipalType.ROLE],
        )

    def _granted(self, bag: Any, call: Call) -> list[Granted]:
        """A privilege for each name; a request may name several between commas."""
        granted = []
        for sent in (bag.privileges if bag is not None else None) or ():
            if sent.hiveObject is None or sent.grantInfo is None:
                raise InvalidArgument("a privilege needs an object (hiveObject) and what is granted (grantInfo)")
            info = sent.grantInfo
            at, principal = self._object(sent.hiveObject), _principal(sent.principalType, sent.principalName)
            record = PrivilegeRecord(
                grantor_type=info.grantorType or PrincipalType.USER, grant_option=bool(info.grantOption)
            )
            grantor = info.grantor or call.session.user or ""
            names = [name.strip() for name in (info.privilege or "").split(",") if name.strip()]
            if not names:
                raise InvalidArgument("a privilege has no name (grantInfo.privilege)")
            granted += [
                Granted(Privilege(at, principal, name, grantor, sent.authorizer or ""), record) for name in names
            ]
        return granted

    def _object(self, ref: Any, *, any_column: bool = False) -> GrantObject:
        """With ``any_column`` a reference to a column means all columns of its table, whichever it names.

        Raises InvalidArgument for a reference that names less than its type needs: it would mean a larger object.
        """
        kind = None if ref is None else ref.objectType
        if kind == HiveObjectType.GLOBAL:
            return GrantObject(DEFAULT_CATALOG)
        if kind not in _NAMED:
            raise InvalidArgument(
                f"privileges on objects of type {kind} are not kept; name a database, table or column"
            )
        name = database_name(ref.dbName, ref.catName)
        database = GrantObject(name.catalog, _given("the database (dbName)", name.name))
        if kind == HiveObjectType.DATABASE:
            return database
        table = database._replace(table=_given("the table (objectName)", ref.objectName).lower())
        if kind == HiveObjectType.TABLE:
            return table
        if kind == HiveObjectType.PARTITION:
            values = _given("the partition (partValues)", ref.partValues)
            return table._replace(partition=self._partition_name(table, values))
        column = "*" if any_column else _given("the column (columnName)", ref.columnName).lower()
        partition = self._partition_name(table, ref.partValues) if ref.partValues else ""
        return table._replace(partition=partition, column=column)

    def _partition_name(self, at: GrantObject, values: list[str]) -> str:
        table = self._services.warehouse.tables.get(at.catalog, at.database, at.table)
        return table.partition_name(values)


_NAMED: Final = frozenset(
    {HiveObjectType.DATABASE, HiveObjectType.TABLE, HiveObjectType.PARTITION, HiveObjectType.COLUMN}
)


def _given(what: str, value: T | None) -> T:
    if not value:
        raise InvalidArgument(f"the object of a privilege is not named: {what} is missing or empty")
    return value


def _principal(kind: int | None, name: str | None) -> Principal:
    if kind not in _PRINCIPAL_TYPES:
        raise InvalidArgument(f"there is no type {kind} of principals; name a user, a group or a role")
    return Principal(PrincipalType(kind), name or "")


def _is_grant(kind: int | None) -> bool:
    if kind not in (GrantRevokeType.GRANT, GrantRevokeType.REVOKE):
        raise InvalidArgument(f"the request is of type {kind}; it can be GRANT or REVOKE")
    return kind == GrantRevokeType.GRANT


def _role_grant(member: Member) -> RolePrincipalGrant:
    record = member.record
    return RolePrincipalGrant(
        roleName=member.role,
        principalName=member.principal.name,
        principalType=int(member.principal.type),
        grantOption=record.grant_option,
        grantTime=record.granted_ms // 1_000,
        grantorName=record.grantor,
        grantorPrincipalType=record.grantor_type or PrincipalType.USER,
    )


def _kind(at: GrantObject) -> int:
    if at.column:
        return HiveObjectType.COLUMN
    if at.partition:
        return HiveObjectType.PARTITION
    if at.table:
        return HiveObjectType.TABLE
    return HiveObjectType.DATABASE if at.database else HiveObjectType.GLOBAL


def _info(one: Granted) -> PrivilegeGrantInfo:
    return PrivilegeGrantInfo(
        privilege=one.privilege.name,
        createTime=one.record.granted_ms // 1_000,
        grantor=one.privilege.grantor,
        grantorType=one.record.grantor_type,
        grantOption=one.record.grant_option,
    )


def _hive_privilege(one: Granted) -> HiveObjectPrivilege:
    privilege = one.privilege
    at = privilege.object
    ref = HiveObjectRef(
        objectType=_kind(at),
        dbName=at.database or None,
        objectName=at.table or None,
        partValues=[value for _, value in parse_partition_name(at.partition)] if at.partition else [],
        columnName=at.column or None,
        catName=at.catalog,
    )
    return HiveObjectPrivilege(
        hiveObject=ref,
        principalName=privilege.principal.name,
        principalType=int(privilege.principal.type),
        grantInfo=_info(one),
        authorizer=privilege.authorizer or None,
    )
