"""Constraints through the Metastore protocol."""

from collections.abc import Iterator
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AddForeignKeyRequest,
    AddPrimaryKeyRequest,
    DropConstraintRequest,
    ForeignKeysRequest,
    MetaException,
    PrimaryKeysRequest,
    SQLForeignKey,
    SQLPrimaryKey,
)
from thrift.Thrift import TApplicationException

from lakemark_hms.bridge import HmsBridge
from lakemark_server.kv import Store
from lakemark_server.verify import verify
from lakemark_thrift import ttypes
from tests.integration.conftest import Client
from tests.integration.hms_constraints import constrained_table
from tests.integration.hms_objects import table
from tests.integration.hms_raw import Raw


@pytest.fixture
def raw(hms: HmsBridge) -> Iterator[Raw]:
    made = Raw(hms.port)
    yield made
    made.close()


@pytest.fixture
def tables(client: Client) -> Client:
    """A client of ``default.parent`` and ``default.child``, with columns a int, b string, by c string."""
    client.create_table(table("parent", keys="c string"))
    client.create_table(table("child", keys="c string"))
    return client


def key(of: str, *columns: str, name: str | None = None) -> list[SQLPrimaryKey]:
    return [SQLPrimaryKey("default", of, column, at, name, False, False, True) for at, column in enumerate(columns, 1)]


def reference(
    child: str, parent: str, columns: str, name: str | None = None, to: str | None = None
) -> list[SQLForeignKey]:
    pairs = zip(columns.split(), (to or columns).split(), strict=True)
    return [
        SQLForeignKey("default", parent, theirs, "default", child, own, at, 0, 0, name, None, False, False, True)
        for at, (own, theirs) in enumerate(pairs, 1)
    ]


def request(columns: list[Any]) -> AddPrimaryKeyRequest | AddForeignKeyRequest:
    return (AddPrimaryKeyRequest if isinstance(columns[0], SQLPrimaryKey) else AddForeignKeyRequest)(columns)


def keys_of(client: Client, name: str) -> list[tuple[str, str, int]]:
    found = client.get_primary_keys(PrimaryKeysRequest("default", name)).primaryKeys
    return [(one.pk_name, one.column_name, one.key_seq) for one in found]


def references_of(client: Client, parent: str | None = None, child: str | None = None) -> list[tuple[str, ...]]:
    asked = ForeignKeysRequest(parent and "default", parent, child and "default", child)  # null: any
    found = client.get_foreign_keys(asked).foreignKeys
    return [(one.fk_name, one.fktable_name, one.fkcolumn_name, one.pktable_name, one.pkcolumn_name) for one in found]


def test_a_primary_key_is_added_listed_and_dropped(tables: Client) -> None:
    tables.add_primary_key(request(key("parent", "A", "c", name="Key1")))
    assert keys_of(tables, "PARENT") == [("key1", "a", 1), ("key1", "c", 2)]
    with pytest.raises(MetaException, match=r"Primary key already exists for: default\.parent"):
        tables.add_primary_key(request(key("parent", "b")))
    tables.drop_constraint(DropConstraintRequest("default", "parent", "KEY1"))
    assert keys_of(tables, "parent") == []
    with pytest.raises(TApplicationException, match="has no constraint key1"):
        tables.drop_constraint(DropConstraintRequest("default", "parent", "key1"))


def test_what_does_not_fit_the_table_is_refused(tables: Client) -> None:
    for columns, text in (
        (key("parent", "nosuch"), "no column 'nosuch'"),
        (key("nosuch", "a"), "no table default.nosuch"),
        ([*key("parent", "a"), *key("child", "a")], "must be of one table"),
        (reference("child", "nosuch", "a"), "no table default.nosuch"),
        (reference("child", "parent", "nosuch", to="a"), "no column 'nosuch'"),
    ):
        add = tables.add_primary_key if isinstance(columns[0], SQLPrimaryKey) else tables.add_foreign_key
        with pytest.raises(TApplicationException, match=text):
            add(request(columns))
    assert keys_of(tables, "parent") == []
    assert keys_of(tables, "nosuch") == []


def test_names_are_made_up_and_unique(tables: Client) -> None:
    tables.add_primary_key(request(key("parent", "a")))
    (made,) = {name for name, _, _ in keys_of(tables, "parent")}
    assert made.startswith("pk_")
    tables.add_foreign_key(request(reference("child", "parent", "a", "fk1")))
    for columns in (reference("child", "parent", "a", "FK1"), reference("child", "parent", "a", made)):
        with pytest.raises(TApplicationException, match="Constraint name already exists"):
            tables.add_foreign_key(request(columns))


def test_names_are_trimmed_and_bounded(tables: Client) -> None:
    for name in ("x" * 129, "x" * 100_000, "a\0b"):
        for call, asked in (
            (tables.add_primary_key, request(key("parent", "a", name=name))),
            (tables.drop_constraint, DropConstraintRequest("default", "parent", name)),
        ):
            with pytest.raises(TApplicationException, match=r"at most 128|control characters") as refused:
                call(asked)
            assert len(str(refused.value)) < 200
    for name in ("", " "):
        with pytest.raises(TApplicationException, match="name of the constraint is empty"):
            tables.drop_constraint(DropConstraintRequest("default", "parent", name))
    tables.add_primary_key(request(key("parent", "a", name=f" {'K' * 128} ")))
    assert keys_of(tables, "parent") == [("k" * 128, "a", 1)]
    tables.drop_constraint(DropConstraintRequest("default", "parent", f" {'K' * 128} "))
    assert keys_of(tables, "parent") == []


def test_a_foreign_key_refers_to_a_key(tables: Client) -> None:
    with pytest.raises(MetaException, match="no primary key and no unique key"):
        tables.add_foreign_key(request(reference("child", "parent", "a")))
    tables.add_primary_key(request(key("parent", "a", "b")))
    for columns, text in (
        (reference("child", "parent", "a"), "none of its keys: a, b"),
        (reference("child", "parent", "b c", to="a b"), "b is string, and default.parent.a is int"),
        (reference("parent", "parent", "a b"), "refers to itself"),
    ):
        with pytest.raises(MetaException, match=text):
            tables.add_foreign_key(request(columns))
    tables.add_foreign_key(request(reference("child", "parent", "a b", "fk1")))
    listed = [("fk1", "child", "a", "parent", "a"), ("fk1", "child", "b", "parent", "b")]
    assert references_of(tables, child="child") == references_of(tables, parent="parent") == listed
    assert references_of(tables, parent="parent", child="parent") == []
    (pk_name,) = {name for name, _, _ in keys_of(tables, "parent")}
    asked = ForeignKeysRequest(None, None, "default", "child")
    assert {one.pk_name for one in tables.get_foreign_keys(asked).foreignKeys} == {pk_name}


def test_all_columns_of_a_foreign_key_refer_to_one_table(tables: Client) -> None:
    tables.add_primary_key(request(key("parent", "a", "b")))
    for field, other in (("pktable_name", "other"), ("pktable_db", "other"), ("pktable_db", "@oops")):
        columns = reference("child", "parent", "a b", "f")
        setattr(columns[1], field, other)
        with pytest.raises(TApplicationException, match=r"refers to 2 tables|not of the form"):
            tables.add_foreign_key(request(columns))
    assert references_of(tables, child="child") == []
    columns = reference("child", "parent", "a b", "f")
    columns[1].pktable_db, columns[1].pktable_name = "@hive#DEFAULT", "Parent"
    tables.add_foreign_key(request(columns))
    assert len(references_of(tables, child="child")) == 2


def test_foreign_keys_follow_their_tables(tables: Client, store: Store) -> None:
    tables.add_primary_key(request(key("parent", "a")))
    tables.add_foreign_key(request(reference("child", "parent", "a", "fk1")))
    for old, new in (("parent", "elder"), ("child", "heir")):
        renamed = tables.get_table("default", old)
        renamed.tableName = new
        tables.alter_table("default", old, renamed)
    assert references_of(tables, child="heir") == [("fk1", "heir", "a", "elder", "a")]
    assert references_of(tables, parent="elder") == [("fk1", "heir", "a", "elder", "a")]
    assert keys_of(tables, "elder")[0][1:] == ("a", 1)
    assert keys_of(tables, "parent") == []
    tables.drop_table("default", "elder", True)
    assert references_of(tables, child="heir") == []
    tables.create_table(table("elder"))
    assert keys_of(tables, "elder") == references_of(tables, parent="elder") == []
    tables.drop_table("default", "heir", True)
    assert verify(store) == []


def test_a_dropped_child_frees_the_name_at_its_parent(tables: Client) -> None:
    tables.add_primary_key(request(key("parent", "a")))
    for _ in range(2):
        tables.add_foreign_key(request(reference("child", "parent", "a", "fk1")))
        tables.drop_table("default", "child", True)
        tables.create_table(table("child", keys="c string"))


def test_a_foreign_key_is_dropped_by_its_parent_as_in_hive(tables: Client) -> None:
    tables.add_primary_key(request(key("parent", "a")))
    tables.add_foreign_key(request(reference("child", "parent", "a", "fk1")))
    tables.drop_constraint(DropConstraintRequest("default", "parent", "fk1"))
    assert references_of(tables, child="child") == references_of(tables, parent="parent") == []


def test_constraints_of_all_kinds_come_with_a_new_table(raw: Raw) -> None:
    raw.call("create_table_req", request=constrained_table())
    asked = ttypes.AllTableConstraintsRequest(dbName="default", tblName="T", catName="hive")
    every = raw.call("get_all_table_constraints", request=asked).success.allTableConstraints
    assert [(one.pk_name, one.column_name, one.catName) for one in every.primaryKeys] == [("p", "a", "hive")]
    assert [(one.fk_name, one.fkcolumn_name, one.pkcolumn_name) for one in every.foreignKeys] == [("f", "b", "a")]
    unique = [(one.uk_name, one.column_name, one.key_seq) for one in every.uniqueConstraints]
    assert unique == [("u1", "a", 1), ("u1", "b", 2), ("u2", "b", 1)]
    assert sorted(one.column_name for one in every.notNullConstraints) == ["a", "b"]
    assert all(one.nn_name.startswith("nn_") for one in every.notNullConstraints)
    assert [(one.dc_name, one.default_value) for one in every.defaultConstraints] == [("d", "7")]
    assert [(one.check_expression, one.enable_cstr) for one in every.checkConstraints] == [("a > b", True)]


def test_a_table_whose_constraints_are_wrong_is_not_created(client: Client) -> None:
    with pytest.raises(Exception, match="no column 'nosuch'"):
        client.create_table_with_constraints(table("t"), key("t", "nosuch"), [])
    assert client.get_all_tables("default") == []
    client.create_table_with_constraints(table("t"), key("t", "a"), [])
    assert next(name for name, _, _ in keys_of(client, "t")).startswith("pk_")
