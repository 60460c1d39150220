#!/usr/bin/env python3
"""Generates ``lakemark_proto`` (gRPC) and ``lakemark_thrift`` (Hive Metastore) into ``build/generated``.

Run it after a change to ``protos/`` or ``thrift/``; building or installing the distribution runs it, too. It does
nothing when neither its inputs nor itself changed, and touches only files whose content is new.

The files in ``protos/`` import each other as ``lakemark/v1/...``, which in Python would be the import package of the
client. They are therefore compiled from a copy in which that path is ``lakemark_proto/v1/...``; the names of packages,
services and messages on the wire stay ``lakemark.v1``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import generate_thrift

ROOT = Path(__file__).resolve().parent.parent
_TOOLS = ("grpcio-tools", "mypy-protobuf", "thriftpy2")
_HEADER = "# Generated from protos/ by scripts/generate.py: do not edit.\n"


def generate(root: Path = ROOT) -> bool:
    """Brings ``<root>/build/generated`` up to date; False when it already was. RuntimeError: protoc failed."""
    target = root / "build" / "generated"
    protos = sorted((root / "protos").rglob("*.proto"))
    idl = root / "thrift" / "hive_metastore.thrift"
    stamp = target / ".stamp"
    if stamp.exists():
        digest, *names = stamp.read_text().splitlines()
        if digest == _digest(root, [*protos, idl]) and all((target / name).exists() for name in names):
            return False
    files = {f"lakemark_thrift/{name}": text.encode() for name, text in generate_thrift.render(idl).items()}
    files |= _compile_protos(root / "protos", protos)
    _write(target, files)
    stamp.write_text("\n".join([_digest(root, [*protos, idl]), *sorted(files)]) + "\n")
    return True


def _digest(root: Path, inputs: list[Path]) -> str:
    own = [Path(__file__), Path(generate_thrift.__file__)]
    found = hashlib.sha256()
    for path in [*inputs, *own]:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    found.update(" ".join(metadata.version(tool) for tool in _TOOLS).encode())
    return found.hexdigest()


def _compile_protos(source: Path, protos: list[Path]) -> dict[str, bytes]:
    """The generated files of ``lakemark_proto``, by path below ``build/generated``."""
    import grpc_tools  # type: ignore[import-untyped,unused-ignore]
    from grpc_tools import protoc  # type: ignore[import-untyped,unused-ignore]

    with tempfile.TemporaryDirectory() as scratch:
        staged, out = Path(scratch, "in"), Path(scratch, "out")
        out.mkdir()
        names = []
        for path in protos:
            name = "lakemark_proto" + path.relative_to(source).as_posix().removeprefix("lakemark")
            copy = staged / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text().replace('import "lakemark/', 'import "lakemark_proto/'))
            names.append(name)
        plugins = [f"--plugin={tool}={_plugin(tool)}" for tool in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
        outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        outputs += ["--mypy_opt=quiet", "--mypy_grpc_opt=quiet"]
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        if names and protoc.main(["protoc", f"-I{staged}", f"-I{well_known}", *plugins, *outputs, *names]) != 0:
            raise RuntimeError("protoc failed: see its messages above")
        files = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.py*")}
    for folder in {Path(name).parent for name in files} | {Path("lakemark_proto")}:
        files[f"{folder}/__init__.py"] = _HEADER.encode()
    files["lakemark_proto/py.typed"] = b""
    return files


def _plugin(tool: str) -> str:
    """A protoc plug-in beside the running interpreter, or on the path (isolated builds)."""
    places = [str(Path(sys.executable).parent), sysconfig.get_path("scripts"), os.environ.get("PATH", "")]
    found = shutil.which(tool, path=os.pathsep.join(places))
    if found is None:
        raise RuntimeError(f"{tool} is not installed: it comes with mypy-protobuf")
    return found


def _write(target: Path, files: dict[str, bytes]) -> None:
    """Makes the generated packages hold exactly these files, touching only what differs."""
    for package in ("lakemark_proto", "lakemark_thrift"):
        for path in (target / package).rglob("*.py*"):
            if path.parent.name != "__pycache__" and path.relative_to(target).as_posix() not in files:
                path.unlink()
    for name, content in files.items():
        path = target / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    print("generated build/generated" if generate() else "build/generated is up to date")
