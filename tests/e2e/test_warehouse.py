"""Plain Spark on Lakemark: warehouse (Hive) tables, in both of Spark's kinds, on both of its versions.

What is expected is what Spark gives on a Hive 2.3 metastore.
"""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture
def db(spark: SparkProcess, spark_version: str, warehouse: Path) -> Iterator[str]:
    """A database for one test, which is also the current one."""
    name = f"w{spark_version.replace('.', '')}"
    # Spark would choose a place below a warehouse directory of its own.
    spark.sql(f"CREATE DATABASE {name} LOCATION '{(warehouse / name).as_uri()}.db'")
    spark.sql(f"USE {name}")
    yield name
    spark.sql("USE default")
    spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.fixture(params=["hive", "datasource"])
def trips(request: pytest.FixtureRequest, spark: SparkProcess, db: str) -> str:
    """``id, city | month, day`` in either kind, with five rows in four partitions."""
    del db
    if request.param == "hive":
        spark.sql(
            "CREATE TABLE trips (id BIGINT, city STRING) PARTITIONED BY (month INT, day STRING) STORED AS PARQUET"
        )
    else:
        spark.sql(
            "CREATE TABLE trips (id BIGINT, city STRING, month INT, day STRING) USING parquet"
            " PARTITIONED BY (month, day)"
        )
    spark.sql("INSERT INTO trips PARTITION (month = 1, day = 'a') VALUES (1, 'x'), (2, 'y')")
    spark.sql("INSERT INTO trips VALUES (3, 'x', 1, 'b'), (4, NULL, 2, 'a'), (5, 'z', 10, 'x y/z')")
    return "trips"


def ids(spark: SparkProcess, condition: str = "true") -> list[int]:
    return [row[0] for row in spark.sql(f"SELECT id FROM trips WHERE {condition} ORDER BY id")]


def partitions(spark: SparkProcess) -> list[str]:
    return [row[0] for row in spark.sql("SHOW PARTITIONS trips")]


def described(spark: SparkProcess, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {table}")}


def test_databases(spark: SparkProcess, warehouse: Path, spark_version: str) -> None:
    name = f"base{spark_version.replace('.', '')}"
    spark.sql(f"CREATE DATABASE {name} COMMENT 'first' WITH DBPROPERTIES ('team'='blue')")
    assert (name,) in spark.sql("SHOW DATABASES")
    assert spark.sql(f"SHOW DATABASES LIKE '{name[:5]}*'") == [(name,)]
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE DATABASE EXTENDED {name}")}
    assert told["Comment"] == "first"
    assert told["Properties"] == "((team,blue))"
    spark.sql(f"ALTER DATABASE {name} SET DBPROPERTIES ('team'='red', 'k'='v')")
    assert "(k,v), (team,red)" in spark.sql(f"DESCRIBE DATABASE EXTENDED {name}")[-1][1]
    with pytest.raises(SparkStatementError, match="SCHEMA_ALREADY_EXISTS"):
        spark.sql(f"CREATE DATABASE {name}")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    spark.sql(f"CREATE TABLE {name}.t (a INT) STORED AS PARQUET")
    with pytest.raises(SparkStatementError, match=r"SCHEMA_NOT_EMPTY|not empty"):
        spark.sql(f"DROP DATABASE {name}")
    spark.sql(f"DROP DATABASE {name} CASCADE")
    assert (name,) not in spark.sql("SHOW DATABASES")
    with pytest.raises(SparkStatementError, match="SCHEMA_NOT_FOUND"):
        spark.sql(f"USE {name}")


def test_rows_come_back_through_static_and_dynamic_partitions(spark: SparkProcess, trips: str) -> None:
    assert spark.sql(f"SELECT id, city, month, day FROM {trips} ORDER BY id") == [
        (1, "x", 1, "a"),
        (2, "y", 1, "a"),
        (3, "x", 1, "b"),
        (4, None, 2, "a"),
        (5, "z", 10, "x y/z"),
    ]
    assert sorted(partitions(spark)) == ["month=1/day=a", "month=1/day=b", "month=10/day=x y%2Fz", "month=2/day=a"]
    assert spark.sql(f"SHOW PARTITIONS {trips} PARTITION (month = 1)") == [("month=1/day=a",), ("month=1/day=b",)]


FILTERS = (
    ("month = 1", [1, 2, 3]),
    ("month != 1", [4, 5]),
    ("month > 1 AND month <= 3", [4]),
    ("day = 'a' OR month = 10", [1, 2, 4, 5]),
    ("day >= 'b'", [3, 5]),
    ("day LIKE 'x%'", [5]),
    ("day LIKE '%z'", [5]),
    ("day LIKE '%y/%'", [5]),
    ("day IN ('a', 'q')", [1, 2, 4]),
    ("day NOT IN ('a', 'q')", [3, 5]),
    ("month IN (2, 10) AND day = 'a'", [4]),
    ("upper(day) = 'B'", [3]),
    ("CAST(month AS STRING) = '10'", [5]),
    ("month IS NULL", []),
    ("month IS NOT NULL AND id > 4", [5]),
    ("day = 'it\\'s' OR month = 2", [4]),
    ("day = 'a\"b' OR month = 2", [4]),
    ("NOT (month = 1)", [4, 5]),
    ("month <=> 2", [4]),
    ("month BETWEEN 2 AND 9 AND city IS NULL", [4]),
)


def test_filters(spark: SparkProcess, trips: str) -> None:
    """Every form that Spark pushes to the metastore, and some that it does not."""
    del trips
    for condition, expected in FILTERS:
        assert ids(spark, condition) == expected, condition


def test_dates_and_null_partitions(spark: SparkProcess, db: str) -> None:
    del db
    spark.sql("CREATE TABLE d (id INT) PARTITIONED BY (at DATE) STORED AS PARQUET")
    spark.sql("INSERT INTO d VALUES (1, DATE'2024-01-31'), (2, DATE'2024-02-01'), (3, NULL)")
    assert spark.sql("SELECT id FROM d WHERE at >= DATE'2024-02-01'") == [(2,)]
    assert spark.sql("SELECT id FROM d WHERE at IS NULL") == [(3,)]
    assert spark.sql("SELECT id FROM d WHERE at IN (DATE'2024-01-31') OR at IS NULL ORDER BY id") == [(1,), (3,)]
    assert spark.sql("SELECT max(at) FROM d") == [(dt.date(2024, 2, 1),)]
    assert ("at=__HIVE_DEFAULT_PARTITION__",) in spark.sql("SHOW PARTITIONS d")


def test_overwrite(spark: SparkProcess, trips: str) -> None:
    spark.sql(f"INSERT OVERWRITE {trips} PARTITION (month = 1, day = 'a') SELECT 7, 'new'")
    assert ids(spark) == [3, 4, 5, 7]
    spark.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
    try:
        spark.sql(
            f"INSERT OVERWRITE {trips} PARTITION (month, day) SELECT 8, 'n', 2, 'a' UNION ALL SELECT 9, 'n', 3, 'c'"
        )
    finally:
        spark.sql("RESET spark.sql.sources.partitionOverwriteMode")
    assert ids(spark) == [3, 5, 7, 8, 9]


def test_columns_properties_and_comments(spark: SparkProcess, trips: str) -> None:
    spark.sql(f"ALTER TABLE {trips} ADD COLUMNS (fare DECIMAL(8,2) COMMENT 'money')")
    spark.sql(f"INSERT INTO {trips} PARTITION (month = 1, day = 'a') VALUES (6, 'w', 1.50)")
    assert spark.sql(f"SELECT id FROM {trips} WHERE fare > 1") == [(6,)]
    assert spark.sql(f"SELECT count(*) FROM {trips} WHERE fare IS NULL") == [(5,)]
    spark.sql(f"ALTER TABLE {trips} SET TBLPROPERTIES ('team'='blue', 'comment'='all trips')")
    properties = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {trips}")}
    assert properties["team"] == "blue"
    assert described(spark, trips)["Comment"] == "all trips"
    spark.sql(f"ALTER TABLE {trips} UNSET TBLPROPERTIES ('team')")
    assert "team" not in {row[0] for row in spark.sql(f"SHOW TBLPROPERTIES {trips}")}
    spark.sql(f"ALTER TABLE {trips} CHANGE COLUMN city COMMENT 'where'")
    assert ("city", "string", "where") in spark.sql(f"DESCRIBE {trips}")


def test_rename(spark: SparkProcess, trips: str, db: str, warehouse: Path) -> None:
    spark.sql(f"ALTER TABLE {trips} RENAME TO journeys")
    assert spark.sql("SELECT count(*), sum(id) FROM journeys WHERE month >= 1") == [(5, 15)]
    assert spark.sql("SHOW TABLES") == [(db, "journeys", False)]
    assert (warehouse / f"{db}.db" / "journeys" / "month=2").is_dir()
    assert not (warehouse / f"{db}.db" / "trips").exists()
    spark.sql("INSERT INTO journeys VALUES (6, 'x', 1, 'a')")
    assert spark.sql("SELECT sum(id) FROM journeys") == [(21,)]
    with pytest.raises(SparkStatementError, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {trips}")


def test_partitions_are_added_renamed_and_dropped(spark: SparkProcess, trips: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    spark.sql(f"ALTER TABLE {trips} ADD PARTITION (month = 5, day = 'q')")
    spark.sql(f"ALTER TABLE {trips} ADD IF NOT EXISTS PARTITION (month = 5, day = 'q')")
    spark.sql(f"ALTER TABLE {trips} ADD PARTITION (month = 6, day = 'q') LOCATION '{other.as_uri()}'")
    with pytest.raises(SparkStatementError, match=r"PARTITIONS_ALREADY_EXIST|already exist"):
        spark.sql(f"ALTER TABLE {trips} ADD PARTITION (month = 5, day = 'q')")
    spark.sql(f"INSERT INTO {trips} PARTITION (month = 6, day = 'q') VALUES (6, 'far')")
    assert any(other.glob("*.parquet"))
    assert ids(spark, "month = 6") == [6]
    spark.sql(f"ALTER TABLE {trips} PARTITION (month = 2, day = 'a') RENAME TO PARTITION (month = 3, day = 'r')")
    assert ids(spark, "month = 3") == [4]
    assert ids(spark, "month = 2") == []
    spark.sql(f"ALTER TABLE {trips} DROP PARTITION (month = 1)")
    spark.sql(f"ALTER TABLE {trips} DROP IF EXISTS PARTITION (month = 1)")
    with pytest.raises(SparkStatementError, match=r"PARTITIONS_NOT_FOUND|not found"):
        spark.sql(f"ALTER TABLE {trips} DROP PARTITION (month = 77, day = 'q')")
    assert ids(spark) == [4, 5, 6]
    assert sorted(partitions(spark)) == [
        "month=10/day=x y%2Fz",
        "month=3/day=r",
        "month=5/day=q",
        "month=6/day=q",
    ]
    told = spark.sql(f"DESCRIBE EXTENDED {trips} PARTITION (month = 6, day = 'q')")
    assert any(other.name in str(row[1]) for row in told if row[0].startswith("Location"))
    spark.sql(f"ALTER TABLE {trips} PARTITION (month = 5, day = 'q') SET LOCATION '{other.as_uri()}'")
    assert ids(spark, "month = 5") == [6]


def test_repair_finds_directories(spark: SparkProcess, trips: str, db: str, warehouse: Path) -> None:
    place = warehouse / f"{db}.db" / "trips"
    (place / "month=4").mkdir()
    (place / "month=2" / "day=a").rename(place / "month=4" / "day=m")
    spark.sql(f"MSCK REPAIR TABLE {trips}")
    assert ids(spark, "month = 4") == [4]
    assert "month=4/day=m" in partitions(spark)
    spark.sql(f"MSCK REPAIR TABLE {trips} SYNC PARTITIONS")
    assert "month=2/day=a" not in partitions(spark)


def test_analyze(spark: SparkProcess, trips: str) -> None:
    spark.sql(f"ANALYZE TABLE {trips} COMPUTE STATISTICS")
    assert described(spark, trips)["Statistics"].endswith("5 rows")
    spark.sql(f"ANALYZE TABLE {trips} COMPUTE STATISTICS FOR COLUMNS id, city")
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {trips} id")}
    assert (told["min"], told["max"], told["num_nulls"]) == ("1", "5", "0")
    spark.sql(f"ANALYZE TABLE {trips} PARTITION (month = 1, day = 'a') COMPUTE STATISTICS")
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {trips} PARTITION (month = 1, day = 'a')")}
    assert told["Partition Statistics"].endswith("2 rows")


def test_truncate(spark: SparkProcess, trips: str) -> None:
    spark.sql(f"TRUNCATE TABLE {trips} PARTITION (month = 1)")
    assert ids(spark) == [4, 5]
    spark.sql(f"TRUNCATE TABLE {trips}")
    assert ids(spark) == []
    assert len(partitions(spark)) == 4


def test_describe_and_show(spark: SparkProcess, trips: str, db: str, warehouse: Path) -> None:
    told = described(spark, trips)
    assert told["Type"] == "MANAGED"
    assert told["Location"] == f"file:{warehouse}/{db}.db/trips"
    assert told["month"] == "int"
    assert spark.sql("SHOW TABLES LIKE 'tri*'") == [(db, "trips", False)]
    assert "PARTITIONED BY (month" in spark.sql(f"SHOW CREATE TABLE {trips}")[0][0].replace("`", "")
    assert "Partition Values" in spark.sql(f"SHOW TABLE EXTENDED LIKE '{trips}' PARTITION (month = 2, day = 'a')")[0][3]


def test_create_as_select_in_all_kinds(spark: SparkProcess, trips: str, db: str) -> None:
    spark.sql(f"CREATE TABLE c1 USING parquet AS SELECT id, city FROM {trips}")
    spark.sql(f"CREATE TABLE c2 STORED AS ORC AS SELECT * FROM {trips} WHERE month = 1")
    spark.sql(f"CREATE TABLE c3 USING parquet PARTITIONED BY (month) AS SELECT id, month FROM {trips}")
    spark.sql("CREATE TABLE c4 LIKE c3")
    assert spark.sql("SELECT count(*) FROM c1") == [(5,)]
    assert spark.sql("SELECT count(*) FROM c2") == [(3,)]
    assert spark.sql("SELECT id FROM c3 WHERE month = 10") == [(5,)]
    assert spark.sql("SELECT * FROM c4") == []
    assert [row[1] for row in spark.sql(f"SHOW TABLES IN {db}")] == ["c1", "c2", "c3", "c4", "trips"]


def test_an_external_table_leaves_its_data(spark: SparkProcess, db: str, tmp_path: Path) -> None:
    del db
    place = tmp_path / "data"
    spark.sql(f"CREATE EXTERNAL TABLE e (a INT) STORED AS PARQUET LOCATION '{place.as_uri()}'")
    spark.sql("INSERT INTO e VALUES (1)")
    assert described(spark, "e")["Type"] == "EXTERNAL"
    spark.sql("DROP TABLE e")
    assert any(place.glob("*"))
    spark.sql(f"CREATE TABLE e (a INT) USING parquet LOCATION '{place.as_uri()}'")
    assert spark.sql("SELECT * FROM e") == [(1,)]


def test_views(spark: SparkProcess, trips: str, db: str) -> None:
    spark.sql(f"CREATE VIEW v (n, town) COMMENT 'two' AS SELECT id, city FROM {trips} WHERE month = 1")
    assert spark.sql("SELECT n FROM v ORDER BY n") == [(1,), (2,), (3,)]
    with pytest.raises(SparkStatementError, match="ALREADY_EXISTS"):
        spark.sql("CREATE VIEW v AS SELECT 1")
    spark.sql(f"CREATE OR REPLACE VIEW v AS SELECT id FROM {trips} WHERE month = 2")
    assert spark.sql("SELECT * FROM v") == [(4,)]
    spark.sql(f"ALTER VIEW v AS SELECT id FROM {trips} WHERE month = 10")
    assert spark.sql("SELECT * FROM v") == [(5,)]
    spark.sql("ALTER VIEW v SET TBLPROPERTIES ('k'='v')")
    assert spark.sql("SHOW VIEWS") == [(db, "v", False)]
    spark.sql("ALTER VIEW v RENAME TO w")
    assert spark.sql("SELECT * FROM w") == [(5,)]
    spark.sql("DROP VIEW w")
    assert spark.sql("SHOW VIEWS") == []


def test_functions(spark: SparkProcess, db: str) -> None:
    spark.sql("CREATE FUNCTION up AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper'")
    assert spark.sql("SELECT up('a')") == [("A",)]
    assert (f"spark_catalog.{db}.up",) in spark.sql("SHOW USER FUNCTIONS")
    with pytest.raises(SparkStatementError, match=r"ALREADY_EXISTS|already exists"):
        spark.sql("CREATE FUNCTION up AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFLower'")
    spark.sql("CREATE OR REPLACE FUNCTION up AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFLower'")
    spark.sql("DROP FUNCTION up")
    with pytest.raises(SparkStatementError, match="UNRESOLVED_ROUTINE"):
        spark.sql("SELECT up('a')")
    with pytest.raises(SparkStatementError, match="ROUTINE"):
        spark.sql("DROP FUNCTION up")


def test_drop_deletes_the_data(spark: SparkProcess, trips: str, db: str, warehouse: Path) -> None:
    place = warehouse / f"{db}.db" / "trips"
    assert any(place.rglob("*.parquet")) or any(place.rglob("part-*"))
    spark.sql(f"DROP TABLE {trips}")
    assert not place.exists()
    assert spark.sql("SHOW TABLES") == []
    spark.sql("DROP TABLE IF EXISTS trips")
    with pytest.raises(SparkStatementError, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("DROP TABLE trips")


def test_databases_and_tables_come_and_go_where_spark_puts_them(spark: SparkProcess, spark_version: str) -> None:
    name = f"own{spark_version.replace('.', '')}"
    place = spark.warehouse / f"{name}.db"

    def save(mode: str, first: int) -> None:
        spark.python(f"spark.range({first}, {first + 2}).write.mode({mode!r}).saveAsTable('{name}.s')")

    for _ in range(2):  # with the names that were dropped
        spark.sql(f"CREATE DATABASE {name}")
        for kind in ("STORED AS PARQUET", "USING parquet"):
            spark.sql(f"CREATE TABLE {name}.t (id BIGINT) {kind}")
            spark.sql(f"INSERT INTO {name}.t VALUES (1)")
            spark.sql(f"INSERT OVERWRITE {name}.t VALUES (2)")
            assert spark.sql(f"SELECT id FROM {name}.t") == [(2,)]
            spark.sql(f"DROP TABLE {name}.t")
            assert not (place / "t").exists()
        save("error", 0)
        save("append", 2)
        assert spark.sql(f"SELECT sum(id) FROM {name}.s") == [(6,)]
        save("overwrite", 7)
        assert spark.sql(f"SELECT sum(id) FROM {name}.s") == [(15,)]
        spark.sql(f"DROP DATABASE {name} CASCADE")
        assert not place.exists()


def test_files_that_another_table_reads_stay(spark: SparkProcess, db: str, warehouse: Path) -> None:
    place = warehouse / f"{db}.db" / "m"
    spark.sql("CREATE TABLE m (a INT) USING parquet")
    spark.sql("INSERT INTO m VALUES (1)")
    spark.sql(f"CREATE TABLE e (a INT) USING parquet LOCATION '{place.as_uri()}'")
    spark.sql("DROP TABLE m")
    assert spark.sql("SELECT * FROM e") == [(1,)]


def test_text_tables_buckets_and_nested_types(spark: SparkProcess, db: str) -> None:
    del db
    spark.sql("CREATE TABLE csv (a INT, b STRING) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE")
    spark.sql("INSERT INTO csv VALUES (1, 'x')")
    assert spark.sql("SELECT * FROM csv") == [(1, "x")]
    spark.sql("CREATE TABLE b (id INT, name STRING) USING parquet CLUSTERED BY (id) SORTED BY (id) INTO 4 BUCKETS")
    spark.sql("INSERT INTO b SELECT id, 'n' FROM range(20)")
    assert spark.sql("SELECT count(*) FROM b WHERE id = 7") == [(1,)]
    assert described(spark, "b")["Num Buckets"] == "4"
    spark.sql("CREATE TABLE n (s STRUCT<A: INT, b: ARRAY<MAP<STRING, DOUBLE>>>, c CHAR(3), v VARCHAR(4)) USING parquet")
    spark.sql("INSERT INTO n VALUES (named_struct('A', 1, 'b', array(map('k', 2.5D))), 'x', 'yy')")
    assert spark.sql("SELECT s.A, s.b[0]['k'], c, v FROM n") == [(1, 2.5, "x  ", "yy")]
