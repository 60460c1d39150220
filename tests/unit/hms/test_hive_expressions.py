"""What clients of Hive send as expressions: filters as text, nothing, and what only Java can read."""

import pytest

from lakemark_hms.hive_expressions import filter_text, selects_all

KRYO = b"\x01\x00org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDes\xe3"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (None, ""),
        (b"", ""),
        (b"\xff", ""),
        (b" \n", ""),
        (b"p = 'x'", "p = 'x'"),
        ("p = 'ä'", "p = 'ä'"),
        ("p = 'ä'".encode(), "p = 'ä'"),
        (KRYO, None),
        (b"org.apache.hadoop.hive", None),
        (b"length(p) = 1", None),
        (b"p = 'x' and", None),
        (b"p = '\xff'", None),
    ],
)
def test_only_filters_are_read(expression: bytes | str | None, text: str | None) -> None:
    assert filter_text(expression) == text


def test_no_expression_selects_all() -> None:
    assert [selects_all(one) for one in (None, b"", b"\xff", b" ", KRYO)] == [True, True, True, False, False]
