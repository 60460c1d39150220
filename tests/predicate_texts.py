"""Random predicates in Spark SQL over the columns of ``tests.unit.predicates``, to be compared with Spark's results."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lakemark_core.expressions.render import literal_sql
from lakemark_core.expressions.tree import Literal
from tests.unit.predicates import LONG, POOLS, SCHEMA

_INTEGERS = [
    *("0", "1", "-1", "2", "5L", "1Y", "-128Y", "127", "- (1)", "1 + 1", "2 * 3L", "300S", "-(-5)"),
    *("2147483648", "-2147483648", "-9223372036854775808", "-9223372036854775808L", "9223372036854775807"),
    *("CAST('5' AS INT)", "CAST(1.9 AS INT)", "CAST(-1.9D AS BIGINT)", "CAST(TRUE AS TINYINT)", "CAST(' 2 ' AS INT)"),
]
_DECIMALS = [
    *("1.5", "-0.5", "0.10", "0.105", "1.0", "2.00001", "99999999.99", f"{LONG}BD", f"-{LONG}BD", "1e-1BD", "5BD"),
    *("CAST(1.6 AS DECIMAL(10,0))", "CAST('1.5' AS DECIMAL(10,0))", "CAST('1e1' AS DECIMAL(10,2))", "-1.50BD"),
    *(
        "CAST('.105' AS DECIMAL(5,2))",
        "CAST(-2.5 AS DECIMAL(10,0))",
        "CAST('1.5' AS DECIMAL)",
        "CAST(0.5D AS DECIMAL(3,1))",
    ),
]
_DOUBLES = [
    *(
        "0e0",
        "1e0",
        "1.5D",
        "-1.5D",
        "0.1D",
        "1.5F",
        "0.1F",
        "1e300",
        "-1e300",
        "9007199254740992D",
        "CAST('1.5d' AS DOUBLE)",
    ),
    *(
        "double('NaN')",
        "CAST('inf' AS DOUBLE)",
        "CAST('-Infinity' AS DOUBLE)",
        "CAST(0.1 AS FLOAT)",
        "CAST('0.1' AS FLOAT)",
    ),
]
_NUMERALS = ["'1'", "'-1'", "' 2 '", "'0.10'", "'1.5'", "'1.00'", "'0.1'"]
_TEXTS = ["CAST(X'61' AS STRING)", "CAST(1.50 AS STRING)", "string(5)", "r'a\\'", "CAST('ab' AS VARCHAR(1))"]
_DATES = [
    *("DATE '2013-01-31'", "DATE '1970-01-01'", "'2013-02-01'", "'2013-2-1'", "DATE '2013-01-31' + 1", "'2013'"),
    *("CAST('2013-01-31 10:00' AS DATE)", "TIMESTAMP_NTZ '2013-01-31 00:00:00.000001'", "date('1969-12-31')"),
]
_LOCAL = [
    *(
        "TIMESTAMP_NTZ '2013-01-31 00:00:00'",
        "TIMESTAMP_NTZ '2013-01-31 00:00:00+05:00'",
        "'2013-01-31 00:00:00.000001'",
    ),
    *("CAST('2013-02-01 12' AS TIMESTAMP_NTZ)", "DATE '1970-01-01'", "'1970-01-01 00:00:00 +01:00'", "'2013-02'"),
]
_INSTANTS = [
    *("TIMESTAMP '2013-01-31 00:00:00Z'", "TIMESTAMP '2013-01-31 01:00:00+01:00'", "'2013-01-31 00:00:00.000001Z'"),
    *("CAST('2013-02-01 12:00:00 UTC' AS TIMESTAMP)", "TIMESTAMP '1970-01-01 01:00:00 Europe/Berlin'"),
    *("'2013-01-30 19:00:00 America/New_York'", "TIMESTAMP '1969-12-31 23:59:59.999999 GMT+0'"),
]
_BOOLEANS = ["TRUE", "FALSE", "'yes'", "' F '", "boolean('t')", "CAST(0 AS BOOLEAN)", "CAST(1.5 AS BOOLEAN)"]
_OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
_NUMBERS = {"i", "l", "x", "f", "m", "w", "late", "q", "y", "z"}


def constants(name: str) -> list[str]:
    """Constants to compare a column with, in every spelling that Spark accepts."""
    plain = [literal_sql(Literal(value, SCHEMA.field(name).type)) for value in POOLS[name]]
    if name in _NUMBERS:
        return [*plain, *_INTEGERS, *_DECIMALS, *_DOUBLES, *_NUMERALS]
    more = {"d": _DATES, "n": _LOCAL, "t": _INSTANTS, "b": _BOOLEANS, "s": _TEXTS, "p": _TEXTS}
    return [*plain, *more[name]]


def decimal_cast(rng: random.Random) -> str:
    """A cast of a random number, or of its text, to a random decimal type that holds it."""
    scale = rng.randrange(6)
    number = f"{rng.choice(['', '-'])}{rng.randrange(1000)}.{rng.randrange(10**6):06}"[: rng.randrange(4, 11)].rstrip(
        "."
    )
    inner = rng.choice([number, f"'{number}'", f"'{number}e0'", f"{number}BD"])
    return f"CAST({inner} AS DECIMAL({scale + rng.randrange(4, 20)},{scale}))"


def call(rng: random.Random) -> tuple[str, str]:
    """A function of a column, and a constant to compare it with that needs no zone."""
    number = str(rng.choice([0, 1, 2, 3, 5, 12, 31]))
    day = rng.choice(
        ["DATE '2013-01-01'", "DATE '2013-01-31'", "'1970-01-01'", "DATE '2013-02-01'", "DATE '1969-12-29'"]
    )
    column = rng.choice(["d", "t", "n"])
    match rng.randrange(8):
        case 0:
            part = rng.choice(["month", "quarter", "day", "dayofmonth", "dayofyear"])
            return f"{part}({column})", number
        case 1:
            return f"year({column})", rng.choice(["1969", "1970", "2013", "2012.5", "'2013'"])
        case 2:
            part = rng.choice(["MONTH", "DAY", "YEAR", "QUARTER"])
            return rng.choice([f"EXTRACT({part} FROM {column})", f"date_part('{part}', {column})"]), number
        case 3:
            return f"{rng.choice(['hour', 'minute', 'second'])}({rng.choice(['n', 'n', 't'])})", number
        case 4:
            return f"trunc({column}, '{rng.choice(['YEAR', 'MM', 'quarter', 'week'])}')", day
        case 5:
            unit = rng.choice(["YEAR", "MONTH", "QUARTER", "WEEK", "DAY", "HOUR"])
            # With a constant without a zone both are in the session's zone.
            return f"date_trunc('{unit}', {column})", f"TIMESTAMP {day.removeprefix('DATE ')}"
        case 6:
            form = rng.choice(
                ["CAST({} AS DATE)", "to_date({})", "date_add({}, 31)", "date_sub({}, 1)", "date({}) - 30"]
            )
            return form.format(column), day
    return arithmetic(rng)


def arithmetic(rng: random.Random) -> tuple[str, str]:
    column = rng.choice(["i", "l", "x", "f", "m", "q", "y", "late"])
    constant = rng.choice(["1", "2", "-3", "1.5", "0", "0.5D", "2L", "1Y", "-1e0", "CAST('0.25' AS DECIMAL(4,2))"])
    form = rng.choice(["{0} + {1}", "{0} - {1}", "{1} - {0}", "{0} * {1}", "-{0}", "({0} + 1) * {1}", "{1} + {0}"])
    return form.format(column, constant), rng.choice([*_INTEGERS[:8], *_DECIMALS[:5], *_DOUBLES[:6]])


def leaf(rng: random.Random) -> str:
    if rng.random() < 0.3:
        value, constant = call(rng)
        return _condition(rng, value, [constant, constant])
    name = rng.choice(list(POOLS))
    if rng.random() < 0.08:
        return rng.choice(
            [f"{name} IS NULL", f"{name} {rng.choice(_OPERATORS)} {name}", f"isnotnull({name})", "isnan(x)", "isnan(f)"]
        )
    if name in ("s", "p") and rng.random() < 0.3:
        pattern = rng.choice(["a%", "%b", "a_", "a", "%", "ab\\\\%", "_%"])
        return rng.choice([f"{name} LIKE '{pattern}'", f"startswith({name}, 'a')", f"concat({name}, 'x') = 'ax'"])
    listed = constants(name)
    if name in _NUMBERS and rng.random() < 0.3:
        listed = [decimal_cast(rng) for _ in range(3)]
    return _condition(rng, name, listed)


def _condition(rng: random.Random, value: str, listed: Sequence[str]) -> str:
    chosen = [rng.choice(listed) if rng.random() < 0.96 else "NULL" for _ in range(3)]
    match rng.randrange(8):
        case 0:
            return f"{value} {rng.choice(['', 'NOT '])}IN ({', '.join(chosen)})"
        case 1:
            return f"{value} BETWEEN {chosen[0]} AND {chosen[1]}"
        case 2:
            return f"{chosen[0]} {rng.choice(_OPERATORS)} {value}"
    return f"{value} {rng.choice(_OPERATORS)} {chosen[0]}"


def predicate(rng: random.Random) -> str:
    """One condition, or a few of them."""
    match rng.randrange(6):
        case 0:
            return f"NOT ({leaf(rng)})"
        case 1:
            return f"{leaf(rng)} {rng.choice(['AND', 'OR'])} ({leaf(rng)})"
    return leaf(rng)
