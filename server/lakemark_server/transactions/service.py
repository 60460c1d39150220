"""Locks, transactions and write ids, as the Metastore protocol asks for them."""

from __future__ import annotations

from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.lock_manager import LockManager
from lakemark_server.transactions.transaction_manager import TransactionManager
from lakemark_server.transactions.write_id_manager import WriteIdManager


class Transactions:
    """Thread-safe, and correct with any number of processes on the store. By default the limits are Hive's."""

    def __init__(self, mutations: Mutations, limits: TransactionLimits | None = None) -> None:
        limits = limits or TransactionLimits()
        self.locks = LockManager(mutations, limits)
        self.registry = TransactionManager(mutations, limits)
        self.write_ids = WriteIdManager(mutations, limits)
