"""The declared Thrift exception for each error of Lakemark, in one table."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import (
    AlreadyExists,
    DatabaseNotFound,
    FailedPrecondition,
    InvalidArgument,
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

# The first class that fits an error counts, and of its exceptions the first one that the method declares.
_TABLE: Final[tuple[tuple[type[LakemarkError], tuple[type[DeclaredError], ...]], ...]] = (
    (DatabaseNotFound, (NoSuchObjectException, UnknownDBException, InvalidOperationException, InvalidObjectException)),
    (TableNotFound, (NoSuchObjectException, UnknownTableException, InvalidOperationException, InvalidObjectException)),
    (LockNotFound, (NoSuchLockException,)),
    (TransactionNotFound, (NoSuchTxnException,)),
    (TransactionAborted, (TxnAbortedException,)),
    (TransactionOpen, (TxnOpenException,)),
    (NotFound, (NoSuchObjectException, InvalidOperationException, InvalidObjectException)),
    (AlreadyExists, (AlreadyExistsException, InvalidOperationException, InvalidObjectException)),
    (InvalidArgument, (InvalidObjectException, InvalidOperationException, InvalidInputException)),
    (FailedPrecondition, (InvalidOperationException, InvalidObjectException)),
    (LakemarkError, ()),
)
_LAST: Final = (MetaException, ConfigValSecurityException)


def to_declared(method: Method, error: Exception) -> DeclaredError | None:
    """An ``ErrorMapper``: None for errors that are not Lakemark's, and where the method declares nothing that fits."""
    if not isinstance(error, LakemarkError):
        return None
    fitting = next(kinds for kind, kinds in _TABLE if isinstance(error, kind))
    for kind in (*fitting, *_LAST):
        if kind in method.exceptions:
            return kind(error.message)
    return None
