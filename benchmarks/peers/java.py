"""Where Java is, and the flags that Hadoop-era code needs on Java 17 and later."""

import os
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Packages of java.base that Hive, DataNucleus and Kryo open by reflection.
_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
    "sun.security.action",
)


def java_home() -> Path | None:
    """The Java home to use: what `scripts/setup` chose, else `JAVA_HOME`, else none (then `java` of PATH counts)."""
    chosen = REPOSITORY / ".java" / "home"
    if (chosen / "bin" / "java").exists():
        return chosen
    from_environment = os.environ.get("JAVA_HOME")
    return Path(from_environment) if from_environment else None


def java_executable() -> str:
    """The path of the `java` program.

    Raises `FileNotFoundError` if there is none.
    """
    home = java_home()
    if home is not None:
        return str(home / "bin" / "java")
    java = shutil.which("java")
    if java is None:
        raise FileNotFoundError("no Java found: run scripts/setup, or set JAVA_HOME to a Java 17 to 23")
    return java


def open_module_flags() -> list[str]:
    """`--add-opens` flags for code written before Java's modules."""
    return [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES]
