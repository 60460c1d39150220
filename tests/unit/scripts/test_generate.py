"""The generator on a tree of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"

IDL = """
enum Color { RED = 3, BLUE = 7 }
struct Leaf { 2: optional string name = "oak", 5: binary data, 6: Color color }
struct Node { 1: list<Leaf> leaves, 2: map<string, set<i64>> sets, 3: map<list<string>, bool> keys, 4: Node child }
exception Wrong { 1: string message }
service Base { string ping() }
service Trees extends Base {
  Node grow(1: Leaf seed, 2: i16 height = -1) throws (1: Wrong o1),
  void fell(),
  oneway void burn(),
}
"""
TYPES = 'syntax = "proto3";\npackage lakemark.v1;\nmessage Name { string text = 1; }\n'
GREETER = """syntax = "proto3";
package lakemark.v1;
import "lakemark/v1/types.proto";
import "google/protobuf/timestamp.proto";
message Hello { Name name = 1; google.protobuf.Timestamp at = 2; }
service Greeter { rpc Greet(Hello) returns (Name); }
"""
USE = """
from lakemark_thrift import services, ttypes
from lakemark_proto.v1 import greeter_pb2, greeter_pb2_grpc, types_pb2
from grpc_reflection.v1alpha import reflection
from google.protobuf import descriptor_pool
from lakemark_thrift.base import DeclaredError, Struct

leaf = ttypes.Leaf()
assert (leaf.name, leaf.data, leaf) == ("oak", None, ttypes.Leaf("oak"))
assert ttypes.Color(7).name == "BLUE"
node = ttypes.Node.thrift_spec[4][3]
assert node == [ttypes.Node, ttypes.Node.thrift_spec]
assert ttypes.Node.thrift_spec[1] == (1, 15, "leaves", (12, [ttypes.Leaf, ttypes.Leaf.thrift_spec], False), None)
assert ttypes.Node.thrift_spec[3][3] == (15, (11, "UTF8", True), 2, None, False)
grow = services.METHODS["grow"]
assert (grow.args().height, grow.exceptions, grow.oneway) == (-1, {ttypes.Wrong: 1}, False)
assert issubclass(ttypes.Wrong, DeclaredError) and str(ttypes.Wrong("x")) == "x"
assert services.METHODS["burn"].oneway and services.METHODS["burn"].result is None
assert services.METHODS["fell"].success is None and services.METHODS["ping"].success[1] == 11

hello = greeter_pb2.Hello(name=types_pb2.Name(text="a"))
assert hello.DESCRIPTOR.full_name == "lakemark.v1.Hello"
assert greeter_pb2.DESCRIPTOR.services_by_name["Greeter"].full_name == "lakemark.v1.Greeter"
found = descriptor_pool.Default().FindFileContainingSymbol("lakemark.v1.Greeter")
assert [file.name for file in found.dependencies][0] == "lakemark_proto/v1/types.proto"
import sys
assert "lakemark" not in sys.modules
"""


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", SCRIPTS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "thrift").mkdir()
    (tmp_path / "thrift" / "hive_metastore.thrift").write_text(IDL)
    protos = tmp_path / "protos" / "lakemark" / "v1"
    protos.mkdir(parents=True)
    (protos / "types.proto").write_text(TYPES)
    (protos / "greeter.proto").write_text(GREETER)
    return tmp_path


def files(tree: Path) -> dict[str, tuple[int, bytes]]:
    found = [path for path in (tree / "build").rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_what_is_generated_can_be_used(generate: ModuleType, tree: Path) -> None:
    assert generate.generate(tree)
    generated = tree / "build" / "generated"
    for package in ("lakemark_thrift", "lakemark_proto"):
        assert (generated / package / "py.typed").exists()
    env = {**os.environ, "PYTHONPATH": str(generated), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_written_when_nothing_changed(generate: ModuleType, tree: Path) -> None:
    generate.generate(tree)
    before = files(tree)
    assert not generate.generate(tree)
    assert files(tree) == before


def test_only_what_changed_is_written_and_what_is_gone_is_removed(generate: ModuleType, tree: Path) -> None:
    generate.generate(tree)
    before = files(tree)
    (tree / "protos" / "lakemark" / "v1" / "greeter.proto").unlink()
    assert generate.generate(tree)
    after = files(tree)
    assert not [path for path in after if "greeter" in path]
    changed = {Path(path).name for path, state in after.items() if before.get(path) != state}
    assert changed == {".stamp"}


def test_a_missing_file_is_made_again(generate: ModuleType, tree: Path) -> None:
    generate.generate(tree)
    lost = tree / "build" / "generated" / "lakemark_thrift" / "ttypes.py"
    lost.unlink()
    assert generate.generate(tree)
    assert lost.exists()


def test_a_proto_that_does_not_compile_is_an_error(generate: ModuleType, tree: Path) -> None:
    (tree / "protos" / "lakemark" / "v1" / "greeter.proto").write_text(GREETER + "message {")
    with pytest.raises(RuntimeError, match="protoc failed"):
        generate.generate(tree)
