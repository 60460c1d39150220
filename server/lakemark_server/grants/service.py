"""Roles and privileges, as the Metastore protocol asks for them."""

from __future__ import annotations

from lakemark_server.grants.privileges import Exists, Privileges
from lakemark_server.grants.roles import Roles
from lakemark_server.store.mutations import Mutations


class Grants:
    """Thread-safe. ``exists``: see ``Privileges``."""

    def __init__(self, mutations: Mutations, exists: Exists) -> None:
        self.roles = Roles(mutations)
        self.privileges = Privileges(mutations, exists)
