"""Every code block of the README and of docs/ does what its reader expects: it runs, or its commands exist."""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib
import inspect
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from container.__main__ import _parse
from container.client import AeronCluster
from container.settings.container_table import settings_table
from container.testing import MemoryMember
from container.testing.processes.endpoints import MemberEndpoints, PortReservation
from container.testing.processes.java_tools import resolve_jar
from container.testing.processes.local_cluster import Node
from tests.documents import (
    PLAN,
    ROOT,
    Block,
    Checked,
    Commands,
    Elsewhere,
    NoCode,
    Runs,
    all_blocks,
    with_what_the_reader_has,
)

BLOCKS = all_blocks()
README_INGRESS = "localhost:9010"
SERVICE = "README.md: A service (python)"


def keys(kind: type, world: str | None = None) -> list[str]:
    return [
        key
        for key, plan in PLAN.items()
        if isinstance(plan, kind) and (world is None or (isinstance(plan, Runs) and plan.world == world))
    ]


# Nothing is left out


def test_every_block_is_in_the_plan() -> None:
    assert sorted(PLAN) == sorted(BLOCKS)
    for key, plan in PLAN.items():
        language = BLOCKS[key].language
        if isinstance(plan, Runs | Checked):
            assert language == "python", key
        elif isinstance(plan, Commands):
            assert language == "sh", key
        elif isinstance(plan, NoCode):
            assert language == "", f"{key}: a block in {language} is code"
        if isinstance(plan, Checked | NoCode):
            assert plan.reason
        if isinstance(plan, Elsewhere):
            path, _, name = plan.test.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), key


# Blocks that run


@dataclass(frozen=True)
class World:
    """A cluster of one member with the README's service, and what a reader has of it."""

    ingress: str
    member: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("readme")
    service = directory / "readme_service.py"
    service.write_text(BLOCKS[SERVICE].text, encoding="utf-8")
    resolve_jar()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.delenv("AERON_DIR", raising=False)  # as its reader may not have it
        patch.setenv("AERON_CLUSTER_MESSAGE_TIMEOUT", "30s")  # a test machine may be slower than a reader's
        patch.syspath_prepend(str(directory))
        ports = PortReservation()
        stack.callback(ports.close)
        endpoints = MemberEndpoints.take(0, ports)
        ports.close()
        node = stack.enter_context(Node(members=[endpoints], properties={"aeron.cluster.max.sessions": "50"}))
        node.start().await_driver()
        node.start_service([sys.executable, str(service)])
        node.await_leader()
        yield World(f"0={endpoints.ingress}", node.base_dir)


class Enough(Exception):
    """What was awaited is printed."""


class Printer:
    """The ``print`` of a block."""

    def __init__(self, awaited: str, *, is_endless: bool) -> None:
        self._awaited = awaited
        self._is_endless = is_endless
        self.text = ""

    def __call__(self, *values: object) -> None:
        self.text += " ".join(map(str, values)) + "\n"
        if self._is_endless and self._awaited in self.text:
            raise Enough


def execute(block: Block, plan: Runs, **places: str) -> str:
    """Run a block as its reader would, and return what it printed."""
    text = with_what_the_reader_has(block)
    assert not plan.replaced or any(name in block.text for name in plan.replaced), f"{block.key}: nothing to replace"
    for name, value in [*plan.replaced.items(), *((f"{{{name}}}", value) for name, value in places.items())]:
        text = text.replace(name, value)
    text = text.replace("timeout=2.0", "timeout=30.0")
    printer = Printer(plan.prints, is_endless=plan.endless)
    names: dict[str, Any] = {"__name__": "__main__", "print": printer}
    name = f"{block.document}:{block.line}"
    code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    try:
        result = eval(code, names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        assert not plan.endless, f"{block.key}: it ended"
    except Enough:
        pass
    assert plan.prints in printer.text, f"{block.key}: printed {printer.text!r}"
    return printer.text


@pytest.mark.parametrize("key", keys(Runs, "cluster"))
def test_the_block_runs_in_a_cluster(key: str, world: World) -> None:
    plan = PLAN[key]
    assert isinstance(plan, Runs)
    block = BLOCKS[key]
    if f"0={README_INGRESS}" in block.text:
        plan = Runs(plan.world, plan.prints, plan.endless, {f"0={README_INGRESS}": world.ingress})
    execute(block, plan, ingress=world.ingress)


@pytest.mark.parametrize("key", keys(Runs, "member"))
def test_the_block_runs_over_what_is_recorded(key: str, world: World) -> None:
    pytest.importorskip("pandas")
    with AeronCluster.connect(
        ingress_channel="aeron:udp",
        ingress_endpoints=world.ingress,
        egress_channel="aeron:udp?endpoint=localhost:0",
        correlate=lambda payload: payload.partition(b"=")[0] if b"=" in payload else None,
    ) as client:
        client.request(b"recorded+1", key=b"recorded")
    plan = PLAN[key]
    assert isinstance(plan, Runs)
    execute(BLOCKS[key], plan, member=str(world.member))


@pytest.mark.parametrize("key", keys(Runs, "memory"))
def test_the_block_runs(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PLAN[key]
    assert isinstance(plan, Runs)
    (tmp_path / "readme_service.py").write_text(BLOCKS[SERVICE].text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    execute(BLOCKS[key], plan)


# The recipe for requests that are repeated

RECIPE = "docs/service.md: Carry out a repeated request once (python)"


def adder(most_clients: int = 1000) -> dict[str, Any]:
    """The names of the recipe's service."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(BLOCKS[RECIPE].text, RECIPE, "exec", dont_inherit=True), names)
    names["MOST_CLIENTS"] = most_clients
    return names


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"ada 1 40", b"ada 1=40"),
        (b"n" * 59 + b" 1 40", b"n" * 59 + b" 1=40"),
        (b"n" * 60 + b" 1 40", b"n" * 60 + b" 1=error: send 64 bytes at most"),
        (b"n" * 60 + b" 100000 40", b"error: send 64 bytes at most"),  # no whole second word in 64 bytes
        (b"n" * 1000, b"error: send 64 bytes at most"),
        (b"ada 01 40", b"ada 01=error: send CLIENT NUMBER AMOUNT, with "),
        (b"ada 1 040", b"ada 1=error: send CLIENT NUMBER AMOUNT, with "),
        (b"ada 1000000000000000000 1", b"ada 1000000000000000000=error: send CLIENT NUMBER AMOUNT, with numbers below"),
        (b"ada 999999999999999999 1", b"ada 999999999999999999=1"),
        (b"ada 1", b"ada 1=error: send CLIENT"),
        (b"ada 1 2 3", b"ada 1=error: send CLIENT"),
        (b"ada -1 2", b"ada -1=error: send CLIENT"),
        (b"ada", b"error: send CLIENT"),
        (b"", b"error: send CLIENT"),
    ],
)
def test_the_recipe_answers_each_request_with_its_key(request_: bytes, answer: bytes) -> None:
    with MemoryMember(adder()["Adder"]) as member:
        (found,) = member.open_session().send(request_)
        if b"error" in answer:
            assert found.startswith(answer)
            assert member.service.state.total == 0
        else:
            assert found == answer


@pytest.mark.parametrize("restarts", [False, True])
def test_the_recipe_forgets_the_client_that_has_been_silent_longest(restarts: bool) -> None:
    names = adder(most_clients=2)
    with MemoryMember(names["Adder"]) as member:
        client = member.open_session()
        client.send(b"ada 1 40")
        client.send(b"bob 1 1")
        assert client.send(b"ada 1 40") == [b"ada 1=40"]
        if restarts:
            member.restart(member.take_snapshot())
            client = member.open_session()
        client.send(b"cy 1 1")
        assert list(member.service.state.last) == ["ada", "cy"]
        assert client.send(b"ada 1 40") == [b"ada 1=40"]
        assert member.service.state.total == 42


def test_the_client_of_the_recipe_finds_its_next_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryMember(adder()["Adder"]) as member:

        class Client:
            """A client with the recipe's function for keys, of a member in memory."""

            def __init__(self, correlate: Any, **_: str) -> None:
                self.key_of, self.session = correlate, member.open_session()

            def __enter__(self) -> Client:
                return self

            def __exit__(self, *_: object) -> None:
                self.session.close()

            def request(self, payload: bytes, *, key: bytes, idempotent: bool, timeout: float) -> bytes:
                assert idempotent
                (answer,) = self.session.send(payload)
                assert self.key_of(answer) == key
                return answer

            connect = classmethod(lambda cls, **settings: cls(**settings))

        monkeypatch.setattr("container.client.ReconnectingClient", Client)
        key = RECIPE.replace("(python)", "(python 2)")
        for printed in ("b'40'\nb'42'\n", "b'82'\nb'84'\n"):
            assert execute(BLOCKS[key], Runs("memory")) == printed
        (last,) = member.service.state.last.values()
        assert last.number == 4


# Blocks that need more than a test has


@pytest.mark.parametrize("key", keys(Checked))
def test_python_that_is_not_run_compiles_and_imports_what_there_is(key: str) -> None:
    text = with_what_the_reader_has(BLOCKS[key])
    compile(text, key, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        exec(compile(ast.Module([node], []), key, "exec"), {})


@pytest.mark.slow
def test_python_that_is_not_run_has_right_types(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    paths = []
    for number, key in enumerate(keys(Checked)):
        text = textwrap.indent(with_what_the_reader_has(BLOCKS[key]), "    ")
        path = tmp_path / f"block_{number}.py"
        path.write_text(f"async def main() -> None:  # {key}\n{text}", encoding="utf-8")
        paths.append(str(path))
    assert paths
    output, errors, status = api.run(
        ["--config-file", str(ROOT / "pyproject.toml"), "--python-version", "3.12", *paths]
    )
    assert status == 0, output + errors


# Commands


class Parsed(BaseException):
    """The arguments were understood."""


def check_command(words: list[str], patch: pytest.MonkeyPatch) -> None:
    program, *arguments = words
    if program == "./run":
        check_run(arguments, patch)
    elif program == "aeron-cluster":
        assert callable(_parse(arguments).command)
    elif program == "export":
        (assignment,) = arguments
        assert assignment.partition("=")[0] in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    elif program == "cythonize":
        assert callable(importlib.import_module("Cython.Build.Cythonize").main)
        assert arguments[0] == "-i"
    else:
        assert program == "pip", f"no test knows the program {program}"
        document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        project = document["project"]
        assert arguments[0] == "install"
        if arguments[1:] == document["build-system"]["requires"]:
            return
        found = re.fullmatch(r"(\S+)\[([\w,-]+)\]", arguments[1])
        assert found is not None
        assert found[1] in (project["name"], "/path/to/checkout")
        assert set(found[2].split(",")) <= set(project["optional-dependencies"])


MODULES = {
    "linearizable": "tests.linearizable.__main__",
    "elections": "tests.elections.__main__",
    "fuzz": "tests.fuzz.__main__",
    "histories": "tests.histories.__main__",
    "mutate": "tests.mutation.__main__",
    "sim": "tests.sim.__main__",
    "soak": "tests.soak.__main__",
}
OTHER_SOAKS = {
    "--archive": "tests.soak.archive_kills",
    "--node": "tests.soak.node_kills",
    "--migration": "tests.soak.migration",
}


def check_run(arguments: list[str], patch: pytest.MonkeyPatch) -> None:
    word, *others = arguments
    script = (ROOT / "run").read_text(encoding="utf-8")
    assert re.search(rf"^  {word} ", script, re.M), f"./run has no word {word}"
    if word == "bench":
        assert (ROOT / "benchmarks" / f"{others[0]}.py").exists()
    elif word in MODULES:
        main = importlib.import_module(MODULES[word]).main
        if word == "soak" and others[0] in OTHER_SOAKS:
            main = partial(importlib.import_module(OTHER_SOAKS[others.pop(0)]).main, [])
        original = argparse.ArgumentParser.parse_args

        def parse_args(parser: argparse.ArgumentParser, *_: object) -> None:
            original(parser, others)
            raise Parsed

        with patch.context() as patched:
            patched.setattr(argparse.ArgumentParser, "parse_args", parse_args)
            with pytest.raises(Parsed):
                main()
    else:
        assert (word, others) in [("demo", []), ("demo", ["pipeline"]), ("test", [])]


@pytest.mark.parametrize("key", keys(Commands))
def test_the_commands_exist(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [shlex.split(line, comments=True) for line in BLOCKS[key].text.splitlines()]
    commands = [words for words in lines if words]
    assert commands
    for words in commands:
        check_command(words, monkeypatch)


def test_the_configuration_file_is_taken() -> None:
    block = BLOCKS["docs/settings.md: Settings (toml)"]
    assert block.language == "toml"
    assert set(tomllib.loads(block.text)) <= set(settings_table())
