"""Programs of ``scripts/`` as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

SCRIPTS: Final = Path(__file__).parents[3] / "scripts"


def load_script(name: str) -> ModuleType:
    """``scripts/<name>.py``, run anew."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
