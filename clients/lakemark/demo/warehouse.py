"""The first half of the tour: warehouse (Hive) tables, as on any Hive Metastore."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc

from lakemark.demo.flights import COLUMNS, NAMES, Flights
from lakemark.demo.report import Report
from lakemark.demo.session import Sql

_DATA = ", ".join(NAMES[:-1])


def tour(sql: Sql, report: Report, flights: Flights) -> None:
    """Runs the tour. Leaves only the database ``air`` behind."""
    report.chapter("Warehouse tables")
    sql("CREATE DATABASE air COMMENT 'flights of 2013'")
    report.check("SHOW DATABASES has it", "air" in sql.column("SHOW DATABASES"), True)
    columns = COLUMNS.removesuffix(", month INT")
    sql(f"CREATE TABLE air.wh ({columns}) PARTITIONED BY (month INT) STORED AS PARQUET")
    _inserts(sql, report, flights)
    _queries(sql, report, flights)
    _alters(sql, report, flights)
    _partitions(sql, report, flights)
    _statistics(sql, report, flights)
    _views_and_functions(sql, report, flights)
    sql("DROP TABLE air.wh")
    report.check("after DROP TABLE", sql.tables("air"), [])


def _inserts(sql: Sql, report: Report, flights: Flights) -> None:
    months = flights.rows_by_month
    with report.step("static and dynamic partition inserts of 336,776 flights"):
        sql(f"INSERT INTO air.wh PARTITION (month = 1) SELECT {_DATA} FROM source WHERE month = 1")
        sql("SET hive.exec.dynamic.partition.mode=nonstrict", quiet=True)
        sql(f"INSERT INTO air.wh PARTITION (month) SELECT {_DATA}, month FROM source WHERE month > 1")
    rows: dict[int, int] = dict(sql("SELECT month, count(*) FROM air.wh GROUP BY month ORDER BY month", quiet=True))
    report.check("rows of each month", rows, months)
    sql(f"INSERT OVERWRITE air.wh PARTITION (month = 2) SELECT {_DATA} FROM source WHERE month = 2 AND origin = 'JFK'")
    from_jfk = flights.of_month(2).filter(pc.field("origin") == "JFK").num_rows
    report.check("month 2 after INSERT OVERWRITE", sql.one("SELECT count(*) FROM air.wh WHERE month = 2"), from_jfk)
    sql(f"INSERT OVERWRITE air.wh PARTITION (month = 2) SELECT {_DATA} FROM source WHERE month = 2", quiet=True)


def _queries(sql: Sql, report: Report, flights: Flights) -> None:
    months = flights.rows_by_month
    for condition, chosen in (
        ("month = 6", [6]),
        ("month >= 3 AND month < 6", [3, 4, 5]),
        ("month IN (1, 12)", [1, 12]),
        ("month NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)", [11, 12]),
        ("month = 2 OR month > 11", [2, 12]),
    ):
        count = sql.one(f"SELECT count(*) FROM air.wh WHERE {condition}")
        report.check(f"WHERE {condition}", count, sum(months[month] for month in chosen))


def _alters(sql: Sql, report: Report, flights: Flights) -> None:
    sql("ALTER TABLE air.wh ADD COLUMNS (note STRING COMMENT 'added later')")
    report.check(
        "rows without the added column", sql.one("SELECT count(*) FROM air.wh WHERE note IS NULL"), _all(flights)
    )
    sql("ALTER TABLE air.wh RENAME TO air.wh2")
    sql("ALTER TABLE air.wh2 RENAME TO air.wh")
    report.check("rows after renaming twice", sql.one("SELECT count(*) FROM air.wh"), _all(flights))
    sql("ALTER TABLE air.wh SET TBLPROPERTIES ('owner.team' = 'ops')")
    report.check("SHOW TBLPROPERTIES", sql("SHOW TBLPROPERTIES air.wh ('owner.team')", quiet=True)[0][1], "ops")


def _partitions(sql: Sql, report: Report, flights: Flights) -> None:
    sql("ALTER TABLE air.wh ADD PARTITION (month = 13)")
    report.check("partitions after ADD PARTITION", len(sql.column("SHOW PARTITIONS air.wh")), 13)
    sql("ALTER TABLE air.wh DROP PARTITION (month = 13)")
    report.check("partitions after DROP PARTITION", len(sql.column("SHOW PARTITIONS air.wh")), 12)
    described = sql("DESCRIBE EXTENDED air.wh", quiet=True)
    place = Path(next(row[1] for row in described if row[0] == "Location").removeprefix("file:"))
    shutil.copytree(place / "month=1", place / "month=14")
    report.say("copied the files of month 1 to a directory month=14, behind the metastore's back")
    sql("MSCK REPAIR TABLE air.wh")
    report.check(
        "rows of month 14 after MSCK REPAIR",
        sql.one("SELECT count(*) FROM air.wh WHERE month = 14"),
        flights.rows_by_month[1],
    )
    sql("ALTER TABLE air.wh DROP PARTITION (month = 14)")


def _statistics(sql: Sql, report: Report, flights: Flights) -> None:
    sql("ANALYZE TABLE air.wh COMPUTE STATISTICS")
    sql("ANALYZE TABLE air.wh COMPUTE STATISTICS FOR COLUMNS carrier")
    described = {row[0]: row[1] for row in sql("DESCRIBE EXTENDED air.wh", quiet=True)}
    report.check("rows in the table's statistics", f"{_all(flights)} rows" in described["Statistics"], True)
    column = {row[0]: row[1] for row in sql("DESCRIBE EXTENDED air.wh carrier", quiet=True)}
    report.check(
        "carriers in the column's statistics (Spark estimates them)", 14 <= int(column["distinct_count"]) <= 18, True
    )


def _views_and_functions(sql: Sql, report: Report, flights: Flights) -> None:
    sql("CREATE VIEW air.late AS SELECT * FROM air.wh WHERE arr_delay > 60")
    late = flights.table.filter(pc.field("arr_delay") > 60).num_rows
    report.check("rows of a view", sql.one("SELECT count(*) FROM air.late"), late)
    sql("DROP VIEW air.late")
    sql("CREATE FUNCTION air.hexed AS 'org.apache.hadoop.hive.ql.udf.UDFHex'")
    report.check("SHOW USER FUNCTIONS", _has_function(sql, "hexed"), True)
    report.check("a function's value", sql.one("SELECT air.hexed(255)"), "FF")
    sql("DROP FUNCTION air.hexed")
    report.check("after DROP FUNCTION", _has_function(sql, "hexed"), False)


def _has_function(sql: Sql, name: str) -> bool:
    return any(function.endswith(f".{name}") for function in sql.column(f"SHOW USER FUNCTIONS IN air LIKE '{name}'"))


def _all(flights: Flights) -> int:
    return flights.table.num_rows
