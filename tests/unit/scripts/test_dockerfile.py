"""The image and the composition cannot be run in the tests: what can be found without an engine is checked here."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from lakemark.cli.app import app
from lakemark_server.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[3]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
DOCKERIGNORE = (REPOSITORY / ".dockerignore").read_text().splitlines()


def _copied() -> list[str]:
    """The sources of every COPY from the build context."""
    lines = (shlex.split(line) for line in DOCKERFILE.splitlines() if line.startswith("COPY "))
    return [source for line in lines if not line[1].startswith("--from") for source in line[1:-1]]


@pytest.mark.parametrize("source", _copied())
def test_what_is_copied_exists_and_is_not_ignored(source: str) -> None:
    assert (REPOSITORY / source).exists()
    assert f"!{source.split('/', maxsplit=1)[0]}" in DOCKERIGNORE


def test_every_requirement_file_is_locked_by_hash() -> None:
    installs = re.findall(r"pip install [^&\n]*-r (\S+)", DOCKERFILE)

    assert [Path(lock).name for lock in installs] == ["build.lock", "requirements-server.lock"]
    assert DOCKERFILE.count("--require-hashes") == len(installs)


def test_it_does_not_run_as_root() -> None:
    stage = DOCKERFILE.rsplit("FROM ", 1)[1]

    assert stage.index("\nUSER 10001\n") < stage.index("\nENTRYPOINT ")


def test_all_services_of_the_composition_see_one_warehouse() -> None:
    composition = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    services = composition["services"]
    places = {
        name: volume.split(":")[1]
        for name, service in services.items()
        for volume in service.get("volumes", [])
        if volume.startswith("warehouse:")
    }

    assert places == {"warehouse": "/warehouse", "lakemark": "/warehouse", "spark": "/warehouse"}
    command = services["lakemark"]["command"]
    assert command[command.index("--warehouse") + 1] == "/warehouse"
    assert set(composition["volumes"]) == {"store", "warehouse"}
    assert services["spark"]["user"] == "10001"
    assert all(needed in services for service in services.values() for needed in service.get("depends_on", {}))
    for variable in services["lakemark"]["environment"]:
        assert variable.removeprefix("LAKEMARK_").lower() in Settings.model_fields


def _served() -> list[list[str]]:
    """The command lines with which the image and the composition start the service."""
    (image,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    composition = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    return [json.loads(image), composition["services"]["lakemark"]["command"]]


@pytest.mark.parametrize("words", _served())
def test_the_command_lines_are_those_of_serve(words: list[str]) -> None:
    """They are parsed as ``lakemark serve`` parses them; an option that does not exist is an error."""
    assert words[0] == "serve"
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    given = serve.make_context("serve", list(words[1:])).params

    assert given["host"] == "0.0.0.0"  # noqa: S104 - inside the container
    assert str(given["warehouse"]).startswith("/")


def test_the_ports_are_the_defaults_of_the_settings() -> None:
    composition = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    ports = {str(Settings.model_fields[name].default) for name in ("grpc_port", "hms_port")}

    assert set(re.findall(r"\d+", re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)[0])) == ports
    published = [port.split(":") for port in composition["services"]["lakemark"]["ports"]]
    assert {inner for _, _, inner in published} == ports
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    spark = composition["services"]["spark"]
    assert (
        f"spark.hive.metastore.uris=thrift://lakemark:{Settings.model_fields['hms_port'].default}" in spark["command"]
    )
    assert spark["environment"]["LAKEMARK_SERVER"] == f"lakemark:{Settings.model_fields['grpc_port'].default}"
