"""Roles and privileges by the Metastore protocol, and what the metastore answers of itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    GetPrincipalsInRoleRequest,
    GetRoleGrantsForPrincipalRequest,
    GrantRevokePrivilegeRequest,
    GrantRevokeRoleRequest,
    GrantRevokeType,
    HiveObjectPrivilege,
    HiveObjectRef,
    HiveObjectType,
    MetaException,
    PrincipalType,
    PrivilegeBag,
    PrivilegeGrantInfo,
    Role,
)

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog.runtime_statistics import KEPT_MAX, KEPT_S, RuntimeStatistics
from lakemark_server.catalog.service import Catalog
from lakemark_server.grants.roles import Roles
from lakemark_server.kv import Store
from lakemark_server.store.keyspace import PRIVILEGES, ROLE_MEMBERS
from lakemark_server.store.mutations import Mutations
from lakemark_server.verify import verify
from lakemark_thrift import ttypes
from tests.integration.conftest import Client
from tests.integration.hms_objects import database, partition, table
from tests.integration.hms_raw import Raw
from tests.lakes import Clock

USER, ROLE, GROUP = PrincipalType.USER, PrincipalType.ROLE, PrincipalType.GROUP


@pytest.fixture(autouse=True)
def _verified(store: Store) -> Iterator[None]:
    yield
    assert verify(store) == []


def on_table(name: str = "t", column: str | None = None, values: list[str] | None = None) -> HiveObjectRef:
    kind = HiveObjectType.COLUMN if column else HiveObjectType.PARTITION if values else HiveObjectType.TABLE
    return HiveObjectRef(kind, "default", name, values or [], column)


def on_database(name: str = "default") -> HiveObjectRef:
    return HiveObjectRef(HiveObjectType.DATABASE, name, None, [], None)


EVERYTHING = HiveObjectRef(HiveObjectType.GLOBAL, None, None, [], None)


def privilege(
    ref: HiveObjectRef, who: str, names: str, kind: int = USER, *, by: str = "boss", option: bool = False
) -> PrivilegeBag:
    info = PrivilegeGrantInfo(names, 0, by, USER, option)
    return PrivilegeBag([HiveObjectPrivilege(ref, who, kind, info)])


def has(client: Client, who: str, ref: HiveObjectRef, kind: int = USER) -> list[str]:
    return sorted(one.grantInfo.privilege for one in client.list_privileges(who, kind, ref))


def test_roles(client: Client) -> None:
    assert client.get_role_names() == ["admin", "public"]
    assert client.create_role(Role("writers", 0, "boss"))
    with pytest.raises(MetaException, match="Role writers already exists"):
        client.create_role(Role("writers", 0, "boss"))
    with pytest.raises(MetaException, match="already exists"):
        client.create_role(Role("public", 0, "boss"))
    assert client.grant_role("writers", "anna", USER, "boss", USER, True)
    with pytest.raises(MetaException, match="anna already has the role writers"):
        client.grant_role("writers", "anna", USER, "boss", USER, True)
    with pytest.raises(MetaException, match="Role none does not exist"):
        client.grant_role("none", "anna", USER, "boss", USER, True)
    with pytest.raises(MetaException, match="implicitly"):
        client.grant_role("public", "anna", USER, "boss", USER, True)
    roles = client.list_roles("anna", USER)
    assert [(one.roleName, one.ownerName) for one in roles] == [("writers", "boss"), ("public", "public")]
    assert client.list_roles("writers", ROLE) == []
    (member,) = client.get_principals_in_role(GetPrincipalsInRoleRequest("writers")).principalGrants
    assert (member.principalName, member.principalType, member.grantOption) == ("anna", USER, True)
    assert (member.grantorName, member.grantorPrincipalType, member.grantTime > 0) == ("boss", USER, True)
    grants = client.get_role_grants_for_principal(GetRoleGrantsForPrincipalRequest("anna", USER)).principalGrants
    assert [one.roleName for one in grants] == ["writers", "public"]
    option = GrantRevokeRoleRequest(GrantRevokeType.REVOKE, "writers", "anna", USER, "boss", USER, True)
    assert client.grant_revoke_role(option).success
    (member,) = client.get_principals_in_role(GetPrincipalsInRoleRequest("writers")).principalGrants
    assert not member.grantOption
    with pytest.raises(MetaException, match="does not have grant option"):
        client.grant_revoke_role(option)
    assert client.revoke_role("writers", "anna", USER)
    with pytest.raises(MetaException, match="does not have the role"):
        client.revoke_role("writers", "anna", USER)
    assert client.get_principals_in_role(GetPrincipalsInRoleRequest("writers")).principalGrants == []


def test_roles_of_roles_have_no_cycles(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.create_role(Role(name, 0, "boss"))
    client.grant_role("a", "b", ROLE, "boss", USER, False)
    client.grant_role("b", "c", ROLE, "boss", USER, False)
    for role, of in (("c", "a"), ("b", "a"), ("a", "a")):
        with pytest.raises(MetaException, match="Cannot grant role"):
            client.grant_role(role, of, ROLE, "boss", USER, False)
    grant = GrantRevokeRoleRequest(GrantRevokeType.GRANT, "c", "anna", USER, "boss", USER, False)
    assert client.grant_revoke_role(grant).success
    client.grant_privileges(privilege(on_database(), "a", "SELECT", ROLE))
    assert list(client.get_privilege_set(on_database(), "anna", []).rolePrivileges) == ["a"]
    assert client.drop_role("b")
    assert client.drop_role("b")  # as in Hive, nothing
    assert client.get_privilege_set(on_database(), "anna", []).rolePrivileges == {}
    for name in ("admin", "public"):
        with pytest.raises(MetaException, match="can't be dropped"):
            client.drop_role(name)


def test_privileges_of_a_dropped_role_do_not_come_back(client: Client) -> None:
    client.create_role(Role("r", 0, "boss"))
    client.grant_privileges(privilege(on_database(), "r", "SELECT", ROLE))
    client.grant_role("r", "anna", USER, "boss", USER, False)
    client.drop_role("r")
    client.create_role(Role("r", 0, "boss"))
    assert has(client, "r", on_database(), ROLE) == []
    assert [one.roleName for one in client.list_roles("anna", USER)] == ["public"]
    client.grant_privileges(privilege(on_database(), "r", "SELECT", ROLE))


def test_what_a_process_that_died_has_left_of_a_role_does_not_count(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_role(Role("r", 0, "boss"))
    client.create_role(Role("s", 0, "boss"))
    client.grant_privileges(privilege(on_database(), "r", "SELECT", ROLE))
    client.grant_role("r", "anna", USER, "boss", USER, False)
    client.grant_role("s", "r", ROLE, "boss", USER, False)
    monkeypatch.setattr(Roles, "_clear", lambda *_: None)
    client.drop_role("r")
    for again in (False, True):
        if again:
            client.create_role(Role("r", 0, "boss"))
        assert has(client, "r", on_database(), ROLE) == has(client, "r", HiveObjectRef(), ROLE) == []
        assert [one.roleName for one in client.list_roles("anna", USER)] == ["public"]
        assert client.get_principals_in_role(GetPrincipalsInRoleRequest("s")).principalGrants == []
    client.grant_role("r", "anna", USER, "boss", USER, False)
    assert [one.roleName for one in client.list_roles("anna", USER)] == ["r", "public"]
    monkeypatch.undo()
    client.drop_role("r")
    assert store.read(lambda tx: tx.get_range(*ROLE_MEMBERS.range())) == []
    assert store.read(lambda tx: tx.get_range(*PRIVILEGES.range())) == []


def test_privileges(client: Client) -> None:
    client.create_table(table("t"))
    assert client.grant_privileges(privilege(on_table(), "anna", "SELECT, INSERT", option=True))
    assert client.grant_privileges(privilege(on_database(), "anna", "CREATE"))
    assert client.grant_privileges(privilege(EVERYTHING, "anna", "ALL"))
    assert client.grant_privileges(privilege(on_table(column="A"), "bert", "SELECT"))
    assert client.grant_privileges(privilege(on_table(), "crew", "SELECT", GROUP))
    with pytest.raises(MetaException, match="SELECT is already granted by boss"):
        client.grant_privileges(privilege(on_table(), "anna", "DELETE,SELECT"))
    assert has(client, "anna", on_table()) == ["INSERT", "SELECT"]  # all of a request or nothing
    client.grant_privileges(privilege(on_table(), "anna", "SELECT", by="another"))
    assert has(client, "anna", on_table()) == ["INSERT", "SELECT", "SELECT"]
    assert has(client, "anna", on_database()) == ["CREATE"]
    assert has(client, "anna", EVERYTHING) == ["ALL"]
    assert has(client, "anna", on_table(column="a")) == []
    assert has(client, "anna", HiveObjectRef()) == ["ALL", "CREATE", "INSERT", "SELECT", "SELECT"]
    assert has(client, "anna", HiveObjectRef(HiveObjectType.TABLE)) == ["INSERT", "SELECT", "SELECT"]
    (one,) = client.list_privileges("bert", USER, on_table(column="a"))
    assert (one.hiveObject.dbName, one.hiveObject.objectName, one.hiveObject.columnName) == ("default", "t", "a")
    assert (one.principalName, one.grantInfo.grantor, one.grantInfo.createTime > 0) == ("bert", "boss", True)
    everybody = client.list_privileges(None, None, on_table())
    assert {one.principalName for one in everybody} == {"anna", "crew"}
    found = client.get_privilege_set(on_table(), "anna", ["crew", "others"])
    assert sorted(one.privilege for one in found.userPrivileges["anna"]) == ["INSERT", "SELECT", "SELECT"]
    assert [one.privilege for one in found.groupPrivileges["crew"]] == ["SELECT"]
    assert found.rolePrivileges == {}

    option = GrantRevokePrivilegeRequest(GrantRevokeType.REVOKE, privilege(on_table(), "anna", "INSERT"), True)
    assert client.grant_revoke_privileges(option).success
    with pytest.raises(MetaException, match="no grant option with INSERT"):
        client.grant_revoke_privileges(option)
    assert client.revoke_privileges(privilege(on_table(), "anna", "SELECT"))
    (left,) = [one for one in client.list_privileges("anna", USER, on_table()) if one.grantInfo.privilege == "SELECT"]
    assert left.grantInfo.grantor == "another"
    with pytest.raises(MetaException, match="No grant of DELETE to anna on default"):
        client.revoke_privileges(privilege(on_table(), "anna", "INSERT,DELETE"))
    assert has(client, "anna", on_table()) == ["INSERT", "SELECT"]
    grant = GrantRevokePrivilegeRequest(GrantRevokeType.GRANT, privilege(on_table(), "anna", "UPDATE"), False)
    assert client.grant_revoke_privileges(grant).success


def test_bad_grants(client: Client) -> None:
    with pytest.raises(MetaException, match=r"no table default\.none"):
        client.grant_privileges(privilege(on_table("none"), "anna", "SELECT"))
    with pytest.raises(MetaException, match="no database 'none'"):
        client.grant_privileges(privilege(on_database("none"), "anna", "SELECT"))
    with pytest.raises(MetaException, match="Role none does not exist"):
        client.grant_privileges(privilege(on_database(), "none", "SELECT", ROLE))
    with pytest.raises(MetaException, match="1 to 128 characters"):
        client.grant_privileges(privilege(on_database(), "", "SELECT"))
    with pytest.raises(MetaException, match="no name"):
        client.grant_privileges(privilege(on_database(), "anna", " ,"))
    with pytest.raises(MetaException, match="no type 9 of principals"):
        client.grant_privileges(privilege(on_database(), "anna", "SELECT", 9))
    with pytest.raises(MetaException, match="hiveObject"):
        client.grant_privileges(PrivilegeBag([HiveObjectPrivilege(principalName="anna")]))
    with pytest.raises(MetaException, match="at most 1,000"):
        client.grant_privileges(privilege(on_database(), "anna", ",".join(map(str, range(1_001)))))


@pytest.mark.parametrize(
    ("narrow", "missing"),
    [
        (HiveObjectRef(HiveObjectType.DATABASE, None, None, [], None), "dbName"),
        (HiveObjectRef(HiveObjectType.DATABASE, "@hive#!", None, [], None), "dbName"),
        (HiveObjectRef(HiveObjectType.TABLE, "", "t", [], None), "dbName"),
        (HiveObjectRef(HiveObjectType.TABLE, "default", None, [], None), "objectName"),
        (HiveObjectRef(HiveObjectType.TABLE, "default", "", [], None), "objectName"),
        (HiveObjectRef(HiveObjectType.PARTITION, "default", None, ["1"], None), "objectName"),
        (HiveObjectRef(HiveObjectType.PARTITION, "default", "t", None, None), "partValues"),
        (HiveObjectRef(HiveObjectType.PARTITION, "default", "t", [], None), "partValues"),
        (HiveObjectRef(HiveObjectType.COLUMN, "default", None, [], "a"), "objectName"),
        (HiveObjectRef(HiveObjectType.COLUMN, "default", "t", [], None), "columnName"),
        (HiveObjectRef(HiveObjectType.COLUMN, "default", "t", ["1"], ""), "columnName"),
    ],
)
def test_an_object_that_is_not_named_is_not_the_one_around_it(
    client: Client, raw: Raw, narrow: HiveObjectRef, missing: str
) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partition(partition(["1"], of="t"))
    around = (EVERYTHING, on_database(), on_table(), on_table(values=["1"]))
    for one in around:
        client.grant_privileges(privilege(one, "anna", "SELECT"))
    before = client.list_privileges(None, None, HiveObjectRef())
    asked = privilege(narrow, "anna", "SELECT")
    for ask in (
        lambda: client.grant_privileges(privilege(narrow, "bert", "SELECT")),
        lambda: client.revoke_privileges(asked),
        lambda: client.grant_revoke_privileges(GrantRevokePrivilegeRequest(GrantRevokeType.REVOKE, asked, False)),
        lambda: client.get_privilege_set(narrow, "anna", []),
    ):
        with pytest.raises(MetaException, match=rf"\({missing}\) is missing or empty"):
            ask()
    if narrow.objectType != HiveObjectType.COLUMN or missing == "objectName":  # without a column: of all columns
        at = ttypes.HiveObjectRef(**vars(narrow))
        request = ttypes.GrantRevokePrivilegeRequest(privileges=ttypes.PrivilegeBag(privileges=[]))
        refused = raw.call("refresh_privileges", objToRefresh=at, authorizer="", grantRequest=request)
        assert missing in refused.o1.message
    if narrow.dbName:  # without a database: all of its kind
        with pytest.raises(MetaException, match=missing):
            client.list_privileges("anna", USER, narrow)
    assert client.list_privileges(None, None, HiveObjectRef()) == before
    assert len(before) == len(around)


def test_privileges_follow_their_object(client: Client) -> None:
    client.create_database(database("d"))
    client.create_table(table("t", keys="p string"))
    client.add_partition(partition(["a/b"], of="t"))
    client.grant_privileges(privilege(on_table(), "anna", "SELECT"))
    client.grant_privileges(privilege(on_table(values=["a/b"]), "anna", "INSERT"))
    client.alter_table("default", "t", table("u", keys="p string"))
    assert has(client, "anna", on_table("u")) == ["SELECT"]
    (one,) = client.list_privileges("anna", USER, on_table("u", values=["a/b"]))
    assert (one.grantInfo.privilege, one.hiveObject.partValues) == ("INSERT", ["a/b"])
    client.drop_table("default", "u", True)
    client.create_table(table("u", keys="p string"))
    client.create_table(table("t", keys="p string"))
    assert has(client, "anna", on_table("u")) == has(client, "anna", on_table("t")) == []
    client.grant_privileges(privilege(on_database("d"), "anna", "CREATE"))
    client.drop_database("d", True, False)
    client.create_database(database("d"))
    assert has(client, "anna", on_database("d")) == []


def test_an_authorizer_refreshes_what_it_has_granted(client: Client, raw: Raw) -> None:
    client.create_table(table("t"))
    client.grant_privileges(privilege(on_table(), "anna", "SELECT"))

    def refresh(*granted: tuple[str, str, str | None], kind: int = HiveObjectType.TABLE) -> None:
        privileges = [
            ttypes.HiveObjectPrivilege(
                hiveObject=ttypes.HiveObjectRef(
                    objectType=HiveObjectType.COLUMN if column else HiveObjectType.TABLE,
                    dbName="default",
                    objectName="t",
                    columnName=column,
                ),
                principalName=who,
                principalType=USER,
                grantInfo=ttypes.PrivilegeGrantInfo(privilege=name, grantor="ranger", grantorType=USER),
                authorizer="ranger",
            )
            for who, name, column in granted
        ]
        request = ttypes.GrantRevokePrivilegeRequest(privileges=ttypes.PrivilegeBag(privileges=privileges))
        at = ttypes.HiveObjectRef(objectType=kind, dbName="default", objectName="t")
        result = raw.call("refresh_privileges", objToRefresh=at, authorizer="ranger", grantRequest=request)
        assert result.success.success

    def granted() -> set[tuple[str, str, str | None]]:
        listed = client.list_privileges(None, None, HiveObjectRef())
        return {(one.principalName, one.grantInfo.privilege, one.hiveObject.columnName) for one in listed}

    refresh(("bert", "SELECT", None), ("anna", "UPDATE", None))
    refresh(("bert", "SELECT", "a"), ("bert", "SELECT", "b"), kind=HiveObjectType.COLUMN)
    assert len(granted()) == 5
    refresh(("bert", "DELETE", None))
    columns = {("bert", "SELECT", "a"), ("bert", "SELECT", "b")}
    assert granted() == {("anna", "SELECT", None), ("bert", "DELETE", None)} | columns
    refresh(("bert", "SELECT", "b"), kind=HiveObjectType.COLUMN)
    refresh()
    assert granted() == {("anna", "SELECT", None), ("bert", "SELECT", "b")}


def test_the_uuid_of_the_metastore(raw: Raw, catalog: Catalog) -> None:
    given = raw.call("get_metastore_db_uuid").success
    assert str(uuid.UUID(given)) == given
    with HmsBridge(catalog) as second:
        other = Raw(second.port)
        assert other.call("get_metastore_db_uuid").success == given
        other.close()


def test_runtime_statistics(raw: Raw) -> None:
    for number in range(3):
        stat = ttypes.RuntimeStat(weight=10, payload=bytes([number]))
        assert raw.call("add_runtime_stats", stat=stat).o1 is None

    def listed(weight: int, until: int) -> list[ttypes.RuntimeStat]:
        request = ttypes.GetRuntimeStatsRequest(maxWeight=weight, maxCreateTime=until)
        return list(raw.call("get_runtime_stats", rqst=request).success)

    assert {one.payload for one in listed(-1, -1)} == {b"\0", b"\1", b"\2"}
    assert len(listed(25, -1)) == 2
    latest = max(one.createTime or 0 for one in listed(-1, -1))
    assert len(listed(-1, latest)) == 3
    assert listed(-1, latest - 60) == listed(5, -1) == []
    large = ttypes.RuntimeStat(weight=1, payload=b"x" * 500_001)
    assert "500,001 bytes" in raw.call("add_runtime_stats", stat=large).o1.message


def test_runtime_statistics_are_bounded(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    statistics = RuntimeStatistics(Mutations(store, clock))
    for number in range(KEPT_MAX + 5):
        statistics.add(1, number.to_bytes(4, "big"))
        clock.advance(1_000)
    kept = [int.from_bytes(one.payload, "big") for one in statistics.latest(-1, -1)]
    assert kept == list(range(KEPT_MAX + 4, 4, -1))
    clock.advance(KEPT_S * 1_000)
    statistics.add(1, b"new")
    assert [one.payload for one in statistics.latest(-1, -1)] == [b"new"]
