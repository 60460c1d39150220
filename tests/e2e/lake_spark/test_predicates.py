"""Predicates as real Spark decides them: what a plan leaves out or leaves to evaluate, and what the client reads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakemark.errors import InvalidPredicate, UnsupportedOperation
from lakemark.expressions import Literal, Unknown, bind, normalize, parse_predicate, to_sql
from lakemark.reading.filters import to_arrow_filter
from lakemark.types import format_type, schema_to_arrow
from lakemark_core.expressions.render import literal_sql
from lakemark_core.expressions.sql_values import literal_of
from lakemark_server.file_index.pruning.rules import prune
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess
from tests.predicate_texts import constants, decimal_cast, predicate
from tests.unit.file_index.pruning.test_pruning_property import statistics
from tests.unit.predicates import PARTITIONS, POOLS, SCHEMA, Row

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("PREDICATES_SEED", "1"))
CASES = int(os.environ.get("PREDICATES_CASES", "200"))
BATCH = 40

NAMED = [
    "z = -34481119365007828498851692537074125690BD",
    "z < -34481119365007828498851692537074125689BD",
    "z > -34481119365007828498851692537074125691BD",
    "m < CAST('1.5' AS DECIMAL(10,0))",
    "m = CAST(0.6 AS DECIMAL(10,0))",
    "m < CAST('12345' AS DECIMAL(3,1))",
    "x < CAST('+nan' AS DOUBLE)",
    "l = -9223372036854775808L",
    "l <= -9223372036854775808L",
    "abs(x) > -9223372036854775808L",
    "concat(s, 'x') = 'ax'",
    "n = '2013-01-31 00:00:00+05:00'",
    "i + 1 > 5",
    "y - 1 < 0",
    "isnan(x) OR x != x",
]


@pytest.fixture
def rows(spark: SparkProcess) -> Iterator[list[list[Row]]]:
    """Files of few rows, which Spark has as the view ``literal_rows`` with an ``id`` that counts them."""
    rng = random.Random(SEED)
    files: list[list[Row]] = []
    for _ in range(14):
        shared = {name: rng.choice([None, *POOLS[name]]) for name in PARTITIONS}
        files.append([_row(rng) | shared for _ in range(rng.randrange(1, 4))])
    listed = [row for file in files for row in file]
    lines = [
        ", ".join([str(at), *(_typed(row[field.name], field) for field in SCHEMA.columns)])
        for at, row in enumerate(listed)
    ]
    names = ", ".join(["id", *(field.name for field in SCHEMA.columns)])
    run(
        spark,
        """
        def truths(texts, zone):
            spark.conf.set("spark.sql.session.timeZone", zone)
            try:
                return ask(texts)
            finally:
                spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        def ask(texts):
            try:
                columns = [f"({text}) AS `c{at}`" for at, text in enumerate(texts)]
                rows = spark.table("literal_rows").selectExpr("id", *columns)
                return list(map(list, zip(*(row[1:] for row in sorted(rows.collect())))))
            except Exception as error:
                if len(texts) == 1:
                    return [str(error)[:300]]
                half = len(texts) // 2
                return ask(texts[:half]) + ask(texts[half:])
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.sql(f"SELECT * FROM VALUES {lines} AS rows({names})").createOrReplaceTempView("literal_rows")
        spark.conf.set("spark.sql.session.timeZone", before)
        """,
        lines=", ".join(f"({line})" for line in lines),
        names=names,
    )
    yield files
    run(spark, "spark.catalog.dropTempView('literal_rows')")


def _row(rng: random.Random) -> Row:
    return {name: rng.choice([None, *pool, *pool]) for name, pool in POOLS.items()}


def _typed(value: Any, field: Any) -> str:
    return f"CAST({literal_sql(Literal(value, field.type))} AS {format_type(field.type)})"


def _truths(spark: SparkProcess, texts: Sequence[str], zone: str = "UTC") -> list[Any]:
    """For each text whether it is true of each row, or what Spark said against it."""
    found: list[Any] = []
    for at in range(0, len(texts), BATCH):
        found += run(spark, "result = truths(texts, zone)", texts=list(texts[at : at + BATCH]), zone=zone)
    return found


def test_predicates_select_what_spark_selects(spark: SparkProcess, rows: list[list[Row]]) -> None:
    rng = random.Random(SEED)
    texts = [*NAMED, *(predicate(rng) for _ in range(CASES))]
    bound: dict[str, Any] = {}
    for text in texts:
        try:
            bound[text] = bind(parse_predicate(text), SCHEMA)
        except InvalidPredicate:
            continue  # refused with a reason
    plain = [text for text in bound if not _of_zone(text)]
    residuals = [to_sql(normalize(bound[text])) for text in bound]
    said = dict(zip(bound, _truths(spark, list(bound)), strict=True))
    left = dict(zip(bound, _truths(spark, residuals), strict=True))
    stats = statistics(rows)
    table = _table(rows)
    wrong = []
    for text, truths in said.items():
        if isinstance(truths, str):
            continue  # Spark ends the query
        wrong += _pruned_wrongly(text, bound[text], truths, rows, stats)
        if isinstance(left[text], str) or _true(left[text]) != _true(truths):
            wrong.append(f"{text}: the residual {to_sql(normalize(bound[text]))} says {left[text]}, Spark {truths}")
        try:
            read = table.filter(to_arrow_filter(normalize(bound[text]), SCHEMA)).column("id").to_pylist()
        except UnsupportedOperation:
            continue
        if read != _true(truths):
            wrong.append(f"{text}: the client reads {read}, Spark {_true(truths)}")
    for zone in ("America/New_York", "Pacific/Kiritimati"):
        zoned = [text for text in bound if _of_zone(text)]
        for text, truths in zip(zoned, _truths(spark, zoned, zone), strict=True):
            if not isinstance(truths, str):
                wrong += _pruned_wrongly(f"{zone}: {text}", bound[text], truths, rows, stats)
    assert not wrong, "\n".join(wrong)
    assert len(plain) > CASES // 2, "most are understood"
    assert sum(isinstance(truths, list) for truths in said.values()) > len(said) // 2, "and Spark answers most"


def _of_zone(text: str) -> bool:
    return "(t" in text or ", t)" in text or "FROM t)" in text or "date_trunc" in text


def _pruned_wrongly(text: str, bound: Any, truths: list[Any], rows: list[list[Row]], stats: Any) -> list[str]:
    result, wrong, at = prune(bound, stats), [], 0
    for index, file in enumerate(rows):
        mine = truths[at : at + len(file)]
        at += len(file)
        if True in mine and not result.may_match[index]:
            wrong.append(f"{text}: file {index} is left out, with rows for which it is {mine}: {file}")
        if result.all_match[index] and mine != [True] * len(file):
            wrong.append(f"{text}: file {index} matches entirely, with rows for which it is {mine}: {file}")
    return wrong


def _true(truths: list[Any]) -> list[int]:
    return [at for at, truth in enumerate(truths) if truth is True]


def _table(rows: list[list[Row]]) -> pa.Table:
    listed = [row for file in rows for row in file]
    table = pa.Table.from_pylist(listed, schema=schema_to_arrow(SCHEMA))
    return table.append_column("id", pa.array(range(len(listed))))


def test_constants_are_what_spark_makes_of_them(spark: SparkProcess) -> None:
    import sqlglot

    rng = random.Random(SEED)
    texts = dict.fromkeys(
        [*(text for name in POOLS for text in constants(name)), *(decimal_cast(rng) for _ in range(100)), *CASTS]
    )
    known: dict[str, Literal] = {}
    for text in texts:
        try:
            literal = literal_of(sqlglot.parse_one(text, dialect="spark"))
        except InvalidPredicate:
            continue
        if literal is not None and literal.type is not None:
            known[text] = literal
    found = run(
        spark,
        """
        def constants(texts):
            columns = [f"({text}) <=> ({ours}), typeof({text}), CAST({text} AS STRING)" for text, ours in texts]
            try:
                (row,) = spark.sql("SELECT " + ", ".join(columns)).collect()
                return [list(row[at:at + 3]) for at in range(0, len(row), 3)]
            except Exception as error:
                if len(texts) == 1:
                    return [[False, "", str(error)[:200]]]
                return constants(texts[: len(texts) // 2]) + constants(texts[len(texts) // 2 :])
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        result = constants(texts)
        spark.conf.set("spark.sql.session.timeZone", zone)
        """,
        texts=[[text, literal_sql(literal)] for text, literal in known.items()],
    )
    wrong = [
        f"{text} is {literal} here, and {value} of type {kind} in Spark"
        for (text, literal), (same, kind, value) in zip(known.items(), found, strict=True)
        if not same or kind != (format_type(literal.type) if literal.type else "")
    ]
    assert not wrong, "\n".join(wrong)
    assert len(known) > len(texts) // 2, "the others are what only Spark can tell"


CASTS = [
    f"CAST({value} AS {kind})"
    for value in (
        *(
            "'1_5'",
            "'٣'",
            "'+nan'",
            "'+NaN'",
            "'1.5f'",
            "' 1.5 '",
            "'1e400'",
            "'0x1p3'",
            "''",
            "'+'",
            "'1.'",
            "'.5'",
            "TRUE",
        ),
        *(
            "5",
            "300",
            "-1.5",
            "2.5",
            "1.45",
            "0.0000001",
            "1e-7",
            "2.82879384806159E17D",
            "1e20",
            "0.1F",
            "NULL",
            "X'61'",
        ),
        *(
            "16777217",
            "16777217.0000000001",
            "9007199791611905",
            "'16777217.0000000001'",
            "'yes'",
            "' T '",
            "'on'",
            "-0.0",
        ),
        *(
            "'2020-01-01'",
            "'2020-01-01 10'",
            "'2020-01-01 10:00:00.5+01:00'",
            "'2020-01-01Z'",
            "'02020-1-1T1:2:3 UTC+1'",
        ),
        *(
            "DATE '2020-01-01'",
            "TIMESTAMP_NTZ '2020-01-01 10:00:00.50'",
            "'2020-01-01 10:00:00 America/Port-au-Prince'",
        ),
    )
    for kind in (
        *("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DECIMAL(3,1)", "DECIMAL(10,0)", "DECIMAL(38,10)"),
        *("BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    )
]


def test_what_spark_alone_decides_stays_with_it() -> None:
    for text in ("m < CAST('12345' AS DECIMAL(3,1))", "i = CAST(300 AS TINYINT)", "i = TRY_CAST('x' AS INT)"):
        assert isinstance(bind(parse_predicate(text), SCHEMA), Unknown)
