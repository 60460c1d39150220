"""The build hook of hatchling: generated code exists before a wheel or an editable install is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import generate


class GenerateHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore]
    """Runs ``scripts/generate.py`` on the tree that is built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate.generate(Path(self.root))
