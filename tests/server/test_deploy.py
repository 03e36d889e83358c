"""The files of deploy/: the service that docker compose starts."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from lazyrag.server.core.config import read_config

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT, "uniqueItems": True}
DURATION = {"type": "string", "pattern": r"^(\d+(h|m|s|ms|us))+$"}
SERVICE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["image"],
    "properties": {
        "image": TEXT,
        "hostname": TEXT,
        "build": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"context": TEXT, "dockerfile": TEXT},
        },
        "command": TEXTS,
        "expose": TEXTS,
        "ports": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"},
        },
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "environment": {"type": "object", "additionalProperties": TEXT},
        "volumes": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^[^:]+:/[^:]+(:ro)?$"},
        },
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test"],
            "properties": {
                "test": {
                    "type": "array",
                    "prefixItems": [{"enum": ["CMD", "CMD-SHELL", "NONE"]}],
                    "items": TEXT,
                },
                "interval": DURATION,
                "timeout": DURATION,
                "start_period": DURATION,
                "retries": {"type": "integer"},
            },
        },
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["condition"],
                "properties": {"condition": {"enum": ["service_started", "service_healthy"]}},
            },
        },
    },
}
COMPOSE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["services"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    },
    "patternProperties": {"^x-": {}},
}
"""The part of the Compose Specification that the file uses."""


@pytest.fixture
def composed():
    """The file, with merged keys."""
    return yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))


def test_it_is_a_compose_file(composed):
    """Keys, types, durations and ports."""
    jsonschema.validate(composed, COMPOSE)
    for broken in ({"image": "x", "port": []}, {"image": "x", "restart": "sometimes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**composed, "services": {"a": broken}}, COMPOSE)


def test_what_it_names_is_there(composed):
    """Files, volumes, services and the image's folder."""
    services = composed["services"]
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            if source == "./files":
                continue
            assert (
                (DEPLOY / source).is_file()
                if source.startswith("./")
                else source in composed["volumes"]
            ), volume
        assert service.get("depends_on", {}).keys() <= services.keys()
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        config, host = service["command"][1], service["command"][3]
        assert (f"{config}:ro" in "".join(service["volumes"]), host) == (True, "0.0.0.0")  # noqa: S104  it has a token


def test_the_configuration_is_that_of_the_volumes(composed):
    """The set's files, index and state are in what the service mounts."""
    config = read_config(DEPLOY / "serve.toml")
    [volumes] = [service["volumes"] for service in composed["services"].values()]
    targets = [Path(volume.split(":")[1]) for volume in volumes]
    for path in (config.server.state, config.sets["notes"].path, config.sets["notes"].store):
        assert any(path.is_relative_to(target) for target in targets), path
