"""Schema changes and plain Spark: every version is read exactly, whatever schemas its files were written with."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import Client
from lakemark.evolution import AddColumn, DropColumn
from lakemark.parquet.adoption import adopt_files
from lakemark.types import Field, parse_type, schema_to_arrow
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]


def append(client: Client, table: str, *rows: dict[str, Any]) -> int:
    with client.begin(table, "append") as writer:
        writer.write(pa.Table.from_pylist(list(rows), schema=schema_to_arrow(writer.schema)))
        return writer.commit().version


def at(table: str, version: int) -> str:
    database, name = table.split(".")
    return f"{database}.`{name}@v{version}`"


def by_reader(spark: SparkProcess, client: Client, table: str, version: int, order: str) -> Rows:
    """What lakemark_spark.read gives."""
    code = f"""
        import lakemark_spark
        found = lakemark_spark.read(spark, {table!r}, version={version}, server={client.address!r}).orderBy({order!r})
        plain = lambda v: [plain(x) for x in v] if isinstance(v, (list, tuple)) else v
        result = [[plain(v) for v in row] for row in found.collect()]
    """
    return [tuple(row) for row in spark.python(dedent(code))]


def test_every_version_has_its_own_names_types_and_values(
    client: Client, spark: SparkProcess, spark_version: str
) -> None:
    table = f"default.every{spark_version.replace('.', '')}"
    spark.sql(
        f"CREATE TABLE {table} (id INT, Name STRING, x FLOAT, day DATE, s STRUCT<City: STRING, zip: INT>, "
        "c VARCHAR(3), m INT) USING parquet PARTITIONED BY (m) TBLPROPERTIES ('lakemark.type'='lake')"
    )
    tables = client.tables
    expected: dict[int, tuple[str, Rows]] = {}

    def look(columns: str, *rows: tuple[Any, ...]) -> None:
        expected[client.snapshot(table).version] = (columns, sorted(rows, key=str))

    day = dt.date(2013, 1, 31)
    first = {"id": 1, "Name": "a", "x": 0.5, "day": day, "s": {"City": "Ulm", "zip": 9}, "c": "abc", "m": 1}
    append(client, table, first)
    look("id name x day s c m", (1, "a", 0.5, day, ["Ulm", 9], "abc", 1))
    # add: the older file has null
    tables.add_column(table, "tip INT", after="id")
    append(client, table, first | {"id": 2, "tip": 7, "m": 2})
    look(
        "id tip name x day s c m",
        (1, None, "a", 0.5, day, ["Ulm", 9], "abc", 1),
        (2, 7, "a", 0.5, day, ["Ulm", 9], "abc", 2),
    )
    # rename: no value is lost, also under the filter
    tables.rename_column(table, "name", "who")
    append(client, table, {**first, "id": 3, "who": "c", "tip": None, "m": 2})
    look(
        "id tip who x day s c m",
        (1, None, "a", 0.5, day, ["Ulm", 9], "abc", 1),
        (2, 7, "a", 0.5, day, ["Ulm", 9], "abc", 2),
        (3, None, "c", 0.5, day, ["Ulm", 9], "abc", 2),
    )
    # widen, and reorder
    tables.widen_column(table, "id", "DECIMAL(12,2)")
    tables.widen_column(table, "x", "DOUBLE")
    tables.widen_column(table, "day", "TIMESTAMP_NTZ")
    tables.widen_column(table, "c", "STRING")
    tables.widen_column(table, "m", "BIGINT")
    tables.move_column(table, "x", first=True)
    midnight, noon = dt.datetime(2013, 1, 31), dt.datetime(2013, 1, 31, 12)
    append(
        client,
        table,
        {"x": 1e300, "id": Decimal("4.25"), "who": "d", "day": noon, "s": None, "c": "longer", "tip": 1, "m": 3},
    )
    wide = [
        (0.5, Decimal("1.00"), None, "a", midnight, ["Ulm", 9], "abc", 1),
        (0.5, Decimal("2.00"), 7, "a", midnight, ["Ulm", 9], "abc", 2),
        (0.5, Decimal("3.00"), None, "c", midnight, ["Ulm", 9], "abc", 2),
        (1e300, Decimal("4.25"), 1, "d", noon, None, "longer", 3),
    ]
    look("x id tip who day s c m", *wide)
    # nested: a field added, one renamed, one dropped whose name comes back
    tables.rename_column(table, "s.city", "town")
    tables.alter(table, [DropColumn("s.zip"), AddColumn(Field(0, "zip", parse_type("string")), "s", first=True)])
    tables.drop_column(table, "tip")
    tables.drop_column(table, "who")
    tables.add_column(table, "who STRING", after="id")
    append(
        client,
        table,
        {"x": 2.0, "id": Decimal(5), "who": "e", "day": noon, "s": {"zip": "89", "town": "Aix"}, "c": "e", "m": 3},
    )
    look(
        "x id who day s c m",
        *[(x, one, None, when, None if s is None else [None, s[0]], c, m) for x, one, _, _, when, s, c, m in wide],
        (2.0, Decimal("5.00"), "e", noon, ["89", "Aix"], "e", 3),
    )

    for version, (columns, rows) in expected.items():
        names = [row[0] for row in spark.sql(f"DESCRIBE {at(table, version)}")]
        assert [name.lower() for name in names] == columns.split(), version
        found = spark.sql(f"SELECT * FROM {at(table, version)}")
        assert sorted(found, key=str) == rows, version
        assert sorted(by_reader(spark, client, table, version, "id"), key=str) == rows, version
        arrow = client.read(table, version=version).to_pylist()
        flat = [tuple(list(v.values()) if isinstance(v, dict) else v for v in row.values()) for row in arrow]
        assert sorted(flat, key=str) == rows, version
    latest = table
    assert spark.sql(f"SELECT id FROM {latest} WHERE who = 'a'") == []
    assert spark.sql(f"SELECT who FROM {at(table, 3 + 1)} WHERE who = 'a' AND id = 1") == [("a",)]
    assert spark.sql(f"SELECT id FROM {latest} WHERE m = 2 ORDER BY id") == [(Decimal("2.00"),), (Decimal("3.00"),)]
    assert spark.sql(f"SELECT s.town FROM {latest} WHERE s IS NOT NULL AND m = 1") == [("Ulm",)]
    assert spark.sql(f"SELECT count(*), count(s), count(s.zip), max(day) FROM {latest}") == [(5, 4, 1, noon)]
    pruned = spark.sql(f"EXPLAIN SELECT id FROM {latest} WHERE m = 3")[0][0]
    assert "PartitionFilters: [isnotnull(m" in pruned
    # an increment over files of several schemas
    increment = f"default.`{table.split('.')[1]}@v2..v6`"
    rows = spark.sql(f"SELECT id, who FROM {increment} ORDER BY id")
    assert rows == [(Decimal("2.00"), "a"), (Decimal("3.00"), "c")]


def test_lists_maps_and_filters(client: Client, spark: SparkProcess, spark_version: str) -> None:
    table = f"default.nested{spark_version.replace('.', '')}"
    client.tables.create(
        table, "id int, l array<struct<x:int,y:int>>, p map<string,struct<net:float,old:int>>, t array<tinyint>, g int"
    )
    first = {"id": 1, "l": [{"x": 1, "y": 2}, None], "p": [("a", {"net": 0.5, "old": 9}), ("b", None)], "t": [1, None]}
    append(client, table, first | {"g": 1}, {"id": 2, "l": None, "p": None, "t": [], "g": 2})
    client.tables.alter(
        table,
        "RENAME COLUMN l.element.x TO east; ALTER COLUMN p.value.net TYPE DOUBLE; ADD COLUMN p.value.gross INT FIRST; "
        "DROP COLUMN p.value.old; ALTER COLUMN t.element TYPE BIGINT; RENAME COLUMN g TO grp; ADD COLUMN g STRING",
    )
    second = {"id": 3, "l": [{"east": 3, "y": 4}], "p": [("c", {"gross": 1, "net": 1e300})], "t": [1 << 40]}
    append(client, table, second | {"grp": 3, "g": "new"})
    text = "to_json(struct(l, p, t), map('ignoreNullFields', 'false'))"
    expected = [
        (1, '{"l":[{"east":1,"y":2},null],"p":{"a":{"gross":null,"net":0.5},"b":null},"t":[1,null]}', 1, None),
        (2, '{"l":null,"p":null,"t":[]}', 2, None),
        (3, '{"l":[{"east":3,"y":4}],"p":{"c":{"gross":1,"net":1.0E300}},"t":[1099511627776]}', 3, "new"),
    ]
    assert spark.sql(f"SELECT id, {text}, grp, g FROM {table} ORDER BY id") == expected
    assert spark.sql(f"SELECT id, l[0].east, p['a'].net FROM {table} WHERE grp < 3 ORDER BY id") == [
        (1, 1, 0.5),
        (2, None, None),
    ]
    assert spark.sql(f"SELECT id FROM {table} WHERE g IS NULL AND l IS NOT NULL") == [(1,)]
    code = f"""
        import lakemark_spark
        read = lambda where: lakemark_spark.read(spark, {table!r}, where, server={client.address!r}).orderBy("id")
        found = read(None).selectExpr("id", {text!r}, "grp", "g").collect()
        result = [[list(row) for row in found], [row.id for row in read("grp <= 2 AND g IS NULL").collect()],
                  [row.id for row in read("g = 'new' OR grp = 1").collect()],
                  [row.id for row in read("g = '1'").collect()]]
    """
    rows, *selected = spark.python(dedent(code))
    assert [tuple(row) for row in rows] == expected
    assert selected == [[1, 2], [1, 3], []]


def test_only_added_columns_need_no_union(client: Client, spark: SparkProcess, spark_version: str) -> None:
    table = f"default.added{spark_version.replace('.', '')}"
    name = table.split(".")[1]
    client.tables.create(table, "id int, s string")
    append(client, table, {"id": 1, "s": "a"})
    client.tables.add_column(table, "t string", first=True)
    append(client, table, {"id": 2, "s": "b", "t": "c"})
    text = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {table}")}["View Text"]
    assert text == f"SELECT `t`, `id`, `s` FROM `default`.`{name}@v3@files`"
    assert spark.sql(f"SELECT * FROM {table} ORDER BY id") == [(None, 1, "a"), ("c", 2, "b")]
    client.tables.rename_column(table, "t", "u")
    client.tables.drop_column(table, "s")
    assert spark.sql(f"SELECT * FROM {table} ORDER BY id") == [(None, 1), ("c", 2)]
    append(client, table, {"id": 3, "u": "d"})
    assert spark.sql(f"SELECT * FROM {table} ORDER BY id") == [(None, 1), ("c", 2), ("d", 3)]
    with pytest.raises(SparkStatementError, match="are read differently"):
        spark.sql(f"SELECT * FROM default.`{name}@v6@files`")


def test_spark_refuses_to_alter_what_it_takes_for_a_view(
    client: Client, spark: SparkProcess, spark_version: str
) -> None:
    table = f"default.views{spark_version.replace('.', '')}"
    client.tables.create(table, "id int, s string")
    for change in ("ADD COLUMNS (x INT)", "CHANGE COLUMN id id BIGINT", "REPLACE COLUMNS (id INT)"):
        with pytest.raises(SparkStatementError, match=r"[Vv]iew|VIEW"):
            spark.sql(f"ALTER TABLE {table} {change}")
    assert client.tables.get(table).version == 0


def test_spark_changes_columns_by_a_property(client: Client, spark: SparkProcess, spark_version: str) -> None:
    table = f"default.property{spark_version.replace('.', '')}"
    client.tables.create(table, "id int, s string, m int", partitioned_by=["m"])
    append(client, table, {"id": 1, "s": "it's", "m": 1})
    changes = r"ADD COLUMN tip DOUBLE COMMENT \'more\' AFTER id; RENAME COLUMN s TO who"
    spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('lakemark.alter' = '{changes}')")
    assert spark.sql(f"SELECT * FROM {table}") == [(1, None, "it's", 1)]
    assert spark.sql(f"SELECT s FROM {at(table, 1)}") == [("it's",)]
    described = {row[0]: row[2] for row in spark.sql(f"DESCRIBE {table}")}
    assert described["tip"] == "more"
    for change, reason in (
        ("DROP COLUMN m", "it is a partition column"),
        ("ALTER COLUMN id TYPE SMALLINT", "narrower"),
    ):
        with pytest.raises(SparkStatementError, match=reason):
            spark.sql(f"ALTER VIEW {table} SET TBLPROPERTIES ('lakemark.alter' = '{change}')")
    assert client.tables.schemas(table)[-1].schema.schema_id == 2


def test_files_that_exist_are_read_exactly(
    client: Client, spark: SparkProcess, spark_version: str, tmp_path: Path
) -> None:
    """Types of files that are not those of the table, as far as they are taken (``lakemark_core.parquet.stored``)."""
    table = f"default.stored{spark_version.replace('.', '')}"
    noon, day = dt.datetime(2024, 1, 1, 12, 30), dt.date(1969, 7, 20)
    columns: dict[str, tuple[str, pa.Array[Any]]] = {
        "id": ("bigint", pa.array([0, 1], pa.int64())),
        "tiny": ("int", pa.array([-128, None], pa.int8())),
        "u8": ("smallint", pa.array([255, None], pa.uint8())),
        "u16": ("int", pa.array([65_535, None], pa.uint16())),
        "u32": ("bigint", pa.array([2**32 - 1, None], pa.uint32())),
        "wide": ("decimal(20,2)", pa.array([Decimal("-1.25"), None], pa.decimal128(5, 2))),
        "few": ("decimal(9,2)", pa.array([Decimal("-1.25"), None], pa.decimal128(5, 2))),
        "long": ("decimal(18,2)", pa.array([Decimal("-1.25"), None], pa.decimal128(12, 2))),
        "large": ("string", pa.array(["é", None], pa.large_string())),
        "kinds": ("string", pa.array(["x", None]).dictionary_encode()),
        "fixed": ("binary", pa.array([b"abcd", None], pa.binary(4))),
        "day": ("date", pa.array([day, None], pa.date64())),
        "ms": ("timestamp", pa.array([noon, None], pa.timestamp("ms", "UTC"))),
        "ntz": ("timestamp_ntz", pa.array([noon, None], pa.timestamp("s"))),
        "nothing": ("int", pa.nulls(2)),
        "many": ("array<bigint>", pa.array([[2**40, None], None], pa.large_list(pa.int64()))),
    }
    client.tables.create(table, ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items()))
    data = pa.table({name: array for name, (_, array) in columns.items()})
    files = [tmp_path / f"{name}.parquet" for name in ("dictionary", "integers", "int96")]
    pq.write_table(data, files[0])
    pq.write_table(data.drop_columns("wide"), files[1], use_dictionary=False, store_decimal_as_integer=True)
    pq.write_table(data.select(["id", "ms"]), files[2], use_deprecated_int96_timestamps=True)
    with client.begin(table) as writer:
        adopted = adopt_files(files, writer)
        writer.commit(adopted.files)

    full = {name: array.to_pylist()[0] for name, (_, array) in columns.items()} | {"ms": noon}
    rows = [full, full | {"wide": None}, dict.fromkeys(columns) | {"id": 0, "ms": noon}]
    wanted = sorted(map(repr, [*rows, *[dict.fromkeys(columns) | {"id": 1}] * 3]))
    by_view = [dict(zip(columns, row, strict=True)) for row in spark.sql(f"SELECT * FROM {table}")]
    assert sorted(map(repr, by_view)) == wanted
    assert len(spark.sql(f"SELECT id FROM {table} WHERE u32 > 2147483648 AND few < 0 AND day < '1970-01-01'")) == 2
    by_arrow = client.read(table).to_pylist()
    assert sorted(repr(row | {"ms": row["ms"] and row["ms"].replace(tzinfo=None)}) for row in by_arrow) == wanted
