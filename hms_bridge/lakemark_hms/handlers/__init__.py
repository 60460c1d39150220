"""The methods of the Hive Metastore, by subject. ``subject`` says how one is added."""

from __future__ import annotations

from typing import Final

from lakemark_hms.handlers.catalogs import Catalogs
from lakemark_hms.handlers.columns import Columns
from lakemark_hms.handlers.configuration import Configuration
from lakemark_hms.handlers.connection import Connection
from lakemark_hms.handlers.constraints import Constraints
from lakemark_hms.handlers.data_connectors import DataConnectors
from lakemark_hms.handlers.databases import Databases
from lakemark_hms.handlers.functions import Functions
from lakemark_hms.handlers.grants import Grants
from lakemark_hms.handlers.locks import Locks
from lakemark_hms.handlers.materialized_views import MaterializedViews
from lakemark_hms.handlers.metastore import Metastore
from lakemark_hms.handlers.notifications import Notifications
from lakemark_hms.handlers.partition_changes import PartitionChanges
from lakemark_hms.handlers.partition_names import PartitionNames
from lakemark_hms.handlers.partitions import Partitions
from lakemark_hms.handlers.statistics import Statistics
from lakemark_hms.handlers.subject import Subject, require_distinct
from lakemark_hms.handlers.table_changes import TableChanges
from lakemark_hms.handlers.tables import Tables
from lakemark_hms.handlers.tokens import Tokens
from lakemark_hms.handlers.transactions import Transactions
from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Handler
from lakemark_server.admission.ranks import Rank

SUBJECTS: Final[tuple[type[Subject], ...]] = (
    Connection,
    Configuration,
    Catalogs,
    Databases,
    Tables,
    TableChanges,
    MaterializedViews,
    Columns,
    Constraints,
    Partitions,
    PartitionNames,
    PartitionChanges,
    Statistics,
    Functions,
    DataConnectors,
    Locks,
    Transactions,
    Grants,
    Metastore,
    Tokens,
    Notifications,
)

require_distinct(name for subject in SUBJECTS for name in subject.ranks)
_RANKS: Final = {name: rank for subject in SUBJECTS for name, rank in subject.ranks.items()}


def all_handlers(services: Services) -> dict[str, Handler]:
    """Handlers of all methods that are served, by name. Other methods are answered as unknown."""
    return {name: handler for subject in SUBJECTS for name, handler in subject(services).handlers().items()}


def rank_of(name: str) -> Rank:
    """The rank of a method. One that is not served counts as a read: to say so changes nothing."""
    return _RANKS.get(name, Rank.READ)
