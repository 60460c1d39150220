"""What roles and privileges are about: principals, and objects by name."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

ADMIN: Final = "admin"
PUBLIC: Final = "public"
"""Every user has this role."""
BUILT_IN: Final = (ADMIN, PUBLIC)


class PrincipalType(IntEnum):
    """As numbered by Hive."""

    USER = 1
    ROLE = 2
    GROUP = 3


class Principal(NamedTuple):
    """Somebody who can have roles and privileges."""

    type: PrincipalType
    name: str


class GrantObject(NamedTuple):
    """The metastore itself (no database), a database, a table, a partition of it, or a column of one of the two."""

    catalog: str
    database: str = ""
    table: str = ""
    partition: str = ""
    column: str = ""


class Privilege(NamedTuple):
    """What somebody may do. ``authorizer``: the plugin of the engine that manages it, "" if none is named."""

    object: GrantObject
    principal: Principal
    name: str
    grantor: str
    authorizer: str = ""
