"""Who has files where: one registry that is asked before anything is made, moved, emptied or deleted.

Every database, table and partition holds the place of its directory (``places``). Rules, which are pure, say who may
hold which place beside whom, and what must not be deleted (``rules``). While files are deleted or moved their
directory is closed: nobody can begin to hold a place there (``closures``). ``Ownership`` puts these together.
``docs/locations.md`` tells users what follows.
"""

from lakemark_server.ownership.ownership import Ownership
from lakemark_server.ownership.rules import Holding

__all__ = ["Holding", "Ownership"]
