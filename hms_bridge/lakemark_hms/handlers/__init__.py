"""The methods of the Hive Metastore, by subject. Each module gives its handlers by method name."""

from __future__ import annotations

from lakemark_hms.handlers import (
    columns,
    constraints,
    databases,
    functions,
    misc,
    partition_changes,
    partition_names,
    partitions,
    statistics,
    table_changes,
    tables,
)
from lakemark_hms.services import Services
from lakemark_hms.wire.base_methods import base_handlers
from lakemark_hms.wire.dispatch import Handler

_MODULES = (
    columns,
    constraints,
    databases,
    functions,
    misc,
    partition_changes,
    partition_names,
    partitions,
    statistics,
    table_changes,
    tables,
)


def all_handlers(services: Services) -> dict[str, Handler]:
    """Every method that is served; all others are answered as unknown."""
    found = base_handlers()
    for module in _MODULES:
        found |= module.handlers(services)
    return found
