"""The compose file: three members, each with a file that a node takes; the files differ in the member's id alone."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from container.node.members import Membership
from container.node.node_command import _NODE_KEYS

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "operations" / "compose.yaml").read_text(encoding="utf-8"))
NAMES = [f"node{number}" for number in range(3)]


def config_of(name: str) -> dict[str, Any]:
    return tomllib.loads(COMPOSE["configs"][name]["content"])


def test_each_member_has_a_container_a_volume_and_a_file_of_its_own() -> None:
    assert [*COMPOSE["services"]] == [*COMPOSE["volumes"]] == [*COMPOSE["configs"]] == NAMES
    for name, service in COMPOSE["services"].items():
        assert service["hostname"] == name
        assert [each["source"] for each in service["configs"]] == [name]
        assert f"{name}:{config_of(name)['directory']}" in service["volumes"]


@pytest.mark.parametrize("number", range(3))
def test_a_node_takes_its_file(number: int) -> None:
    config = config_of(NAMES[number])
    assert config.keys() <= _NODE_KEYS.keys()
    membership = Membership.of_several(config["members"], config["member_id"])
    assert membership.own.ingress == f"{NAMES[number]}:9010"
    first = config_of(NAMES[0])
    assert config | {"member_id": 0} == first


def test_the_page_starts_the_image_that_the_file_names() -> None:
    image = (ROOT / "docs" / "operations" / "Containerfile").read_text(encoding="utf-8")
    for service in COMPOSE["services"].values():
        assert f"-t {service['image']} " in image
