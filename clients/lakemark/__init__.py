"""Lakemark's client: ``lakemark.connect("127.0.0.1:9090")``.

Further modules: ``lakemark.errors`` (every error), ``lakemark.types`` (columns, schemas), ``lakemark.evolution``
(changes of schemas), ``lakemark.parquet`` (files and their statistics) and ``lakemark.expressions`` (predicates).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a type checker that saw __getattr__ would take any name for a public one
    from lakemark.public import *  # noqa: F403
else:

    def __getattr__(name):
        """A public name, ``__all__``, or a module of this package, when it is used for the first time.

        Not before: the program ``lakemark`` has to set gRPC's variables before anything imports gRPC.
        """
        public = name == "__all__" or (name.isidentifier() and not name.startswith("_"))
        if public and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            value = importlib.import_module(f"{__name__}.{name}")
        elif public and hasattr(names := importlib.import_module(f"{__name__}.public"), name):
            value = getattr(names, name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
