"""The declared Thrift exception for each error of Lakemark, in one table."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import (
    AlreadyExists,
    DatabaseNotFound,
    FailedPrecondition,
    InvalidArgument,
    InvalidPartition,
    LakemarkError,
    LockNotFound,
    NotFound,
    TableNotFound,
    TransactionAborted,
    TransactionNotFound,
    TransactionOpen,
)
from lakemark_thrift.base import DeclaredError
from lakemark_thrift.services import Method
from lakemark_thrift.ttypes import (
    AlreadyExistsException,
    ConfigValSecurityException,
    InvalidInputException,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchLockException,
    NoSuchObjectException,
    NoSuchTxnException,
    TxnAbortedException,
    TxnOpenException,
    UnknownDBException,
    UnknownTableException,
)


class NotGiven(InvalidArgument):
    """A field that every metastore asks for is null; Hive says so by its general exception."""

    code = "not_given"


class Modified(FailedPrecondition):
    """A parameter has another value than the client expects (Iceberg's compare-and-swap)."""

    code = "table_modified"


# The first class that fits an error counts, and of its exceptions the first one that the method declares.
_TABLE: Final[tuple[tuple[type[LakemarkError], tuple[type[DeclaredError], ...]], ...]] = (
    (NotGiven, ()),
    (Modified, ()),
    (DatabaseNotFound, (NoSuchObjectException, UnknownDBException, InvalidOperationException, InvalidObjectException)),
    (TableNotFound, (NoSuchObjectException, UnknownTableException, InvalidOperationException, InvalidObjectException)),
    (LockNotFound, (NoSuchLockException,)),
    (TransactionNotFound, (NoSuchTxnException,)),
    (TransactionAborted, (TxnAbortedException,)),
    (TransactionOpen, (TxnOpenException,)),
    (NotFound, (NoSuchObjectException, InvalidOperationException, InvalidObjectException)),
    (AlreadyExists, (AlreadyExistsException, InvalidOperationException, InvalidObjectException)),
    (InvalidPartition, ()),  # as in Hive, whatever the method declares beside its MetaException
    (InvalidArgument, (InvalidObjectException, InvalidOperationException, InvalidInputException)),
    (FailedPrecondition, (InvalidOperationException, InvalidObjectException)),
    (LakemarkError, ()),
)
_LAST: Final = (MetaException, ConfigValSecurityException)

# What single methods of Hive answer otherwise. The first class that fits counts here, too.
_OF_METHOD: Final[dict[str, tuple[tuple[type[LakemarkError], type[DeclaredError]], ...]]] = {
    "alter_function": ((LakemarkError, MetaException),),
    "create_table": ((NotFound, InvalidObjectException),),
    "create_table_with_environment_context": ((NotFound, InvalidObjectException),),
    "create_table_with_constraints": ((NotFound, InvalidObjectException),),
    "create_table_req": ((NotFound, InvalidObjectException),),
    "drop_database": ((InvalidArgument, MetaException),),
    "drop_database_req": ((InvalidArgument, MetaException),),
    "exchange_partition": ((LakemarkError, MetaException),),
    "exchange_partitions": ((LakemarkError, MetaException),),
    "drop_catalog": ((InvalidArgument, MetaException),),
}


def to_declared(method: Method, error: Exception) -> DeclaredError | None:
    """An ``ErrorMapper``: None for errors that are not Lakemark's, and where the method declares nothing that fits."""
    if not isinstance(error, LakemarkError):
        return None
    for kind_of_error, special in _OF_METHOD.get(method.name, ()):
        if isinstance(error, kind_of_error) and special in method.exceptions:
            return special(error.message)
    fitting = next(kinds for kind, kinds in _TABLE if isinstance(error, kind))
    for kind in (*fitting, *_LAST):
        if kind in method.exceptions:
            return kind(error.message)
    return None
