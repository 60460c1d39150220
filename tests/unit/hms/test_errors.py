"""Every error of Lakemark becomes an exception that the method declares."""

import pytest

from lakemark_core import errors
from lakemark_hms.errors import Modified, NotGiven, to_declared
from lakemark_thrift import ttypes
from lakemark_thrift.services import METHODS


def _all(kind: type[errors.LakemarkError]) -> set[type[errors.LakemarkError]]:
    return {kind}.union(*(_all(child) for child in kind.__subclasses__()))


@pytest.mark.parametrize(
    ("method", "error", "expected"),
    [
        ("get_table", errors.TableNotFound, ttypes.NoSuchObjectException),
        ("get_database", errors.DatabaseNotFound, ttypes.NoSuchObjectException),
        ("get_fields", errors.TableNotFound, ttypes.UnknownTableException),
        ("get_fields", errors.DatabaseNotFound, ttypes.UnknownDBException),
        ("create_table", errors.AlreadyExists, ttypes.AlreadyExistsException),
        ("create_table", errors.InvalidSchema, ttypes.InvalidObjectException),
        ("alter_table", errors.TableNotFound, ttypes.InvalidOperationException),
        ("alter_table", errors.AlreadyExists, ttypes.InvalidOperationException),
        ("add_partition", errors.TableNotFound, ttypes.InvalidObjectException),
        ("drop_database", errors.NotEmpty, ttypes.InvalidOperationException),
        ("drop_partition", errors.UnsupportedOperation, ttypes.MetaException),
        ("get_table", errors.Unavailable, ttypes.MetaException),
        ("create_table", NotGiven, ttypes.MetaException),
        ("create_table", errors.DatabaseNotFound, ttypes.InvalidObjectException),
        ("create_table_req", errors.DatabaseNotFound, ttypes.InvalidObjectException),
        ("alter_table", Modified, ttypes.MetaException),
        ("alter_function", errors.AlreadyExists, ttypes.MetaException),
        ("alter_function", errors.FunctionNotFound, ttypes.MetaException),
        ("create_function", errors.DatabaseNotFound, ttypes.NoSuchObjectException),
        ("drop_database", errors.InvalidArgument, ttypes.MetaException),
        ("drop_catalog", errors.NotEmpty, ttypes.InvalidOperationException),
        ("drop_catalog", errors.InvalidArgument, ttypes.MetaException),
    ],
)
def test_the_exception_that_says_it_best(
    method: str, error: type[errors.LakemarkError], expected: type[Exception]
) -> None:
    made = to_declared(METHODS[method], error("what is wrong"))
    assert type(made) is expected
    assert str(made) == "what is wrong"


def test_where_the_general_exception_is_declared_every_error_can_be_said() -> None:
    silent = []
    for name, method in METHODS.items():
        if ttypes.MetaException in method.exceptions:
            silent += [(name, kind) for kind in _all(errors.LakemarkError) if to_declared(method, kind("x")) is None]
    assert silent == []


def test_defects_are_not_dressed_up() -> None:
    assert to_declared(METHODS["get_table"], ZeroDivisionError("x")) is None
