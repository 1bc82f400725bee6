"""A user's project against what a wheel ships: `mypy --strict` accepts what is right, and reports each planted mistake.

The same mistakes at run time are errors that name the setting, and a near name or what is expected.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
import typing
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import container
from container.client import (
    AeronCluster,
    AsyncAeronCluster,
    AsyncReconnectingClient,
    ClientContext,
    ClientSettings,
    ReconnectingClient,
    SessionPool,
)
from container.common.values import is_path
from container.errors import ConfigurationError
from container.setting_types import ContainerArguments, ContainerSettings
from container.settings.container_table import settings_table
from container.settings.setting import Setting
from tests.limits import LIMIT_S

ROOT = Path(__file__).resolve().parent.parent
PROJECT = Path(__file__).resolve().parent / "user_project"
GALLERY = ROOT / "examples" / "gallery"
RIGHT = ("asyncio_client.py", "blocking.py", "controlled.py", "memory_tests.py", "service.py")


def test_mypy_strict_accepts_a_users_project_and_the_gallery_and_reports_mistakes(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    shipping = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(site_packages)]
    subprocess.run(shipping, cwd=ROOT, check=True, capture_output=True, timeout=LIMIT_S)
    (site_packages / "msgspec").symlink_to(Path(msgspec.__file__).parent)

    assert {path.name for path in PROJECT.glob("*.py")} == {*RIGHT, "wrong.py"}
    checking = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable"]
    result = subprocess.run(
        [*checking, str(environment / "bin" / "python"), "--hide-error-context", "--no-pretty", ".", str(GALLERY)],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
        | {"MYPY_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert result.stderr == ""
    reported = re.findall(r"^(\S+\.py):(\d+): error: (.*)$", result.stdout, re.MULTILINE)
    planted = {
        number: line.partition("# wrong: ")[2]
        for number, line in enumerate((PROJECT / "wrong.py").read_text().splitlines(), 1)
        if "# wrong: " in line
    }
    assert {(file, int(line)) for file, line, _ in reported} == {("wrong.py", line) for line in planted}, result.stdout
    for _, line, text in reported:
        assert planted[int(line)] in text
    assert len(planted) >= 25


def test_the_keywords_of_a_client_are_the_fields_of_its_context() -> None:
    assert typing.get_type_hints(ClientSettings) == typing.get_type_hints(ClientContext)
    assert set(ClientSettings.__annotations__) == {field.name for field in dataclasses.fields(ClientContext)}
    assert not ClientSettings.__required_keys__


def test_the_keywords_of_a_container_are_its_settings_and_the_arguments_of_its_context() -> None:
    arguments = {
        name: parameter
        for name, parameter in inspect.signature(container.Context.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    settings = {name: setting for name, setting in settings_table().items() if name not in arguments}
    assert {name: _type_of(each) for name, each in settings.items()} == _texts(ContainerSettings)
    assert {name: each.annotation for name, each in arguments.items()} == {
        name: text for name, text in _texts(ContainerArguments).items() if name not in settings
    }


def _type_of(setting: Setting) -> str:
    """What may be given for a setting, as its annotation says it."""
    if setting.unit:
        return "int | str | None"
    if setting.is_flag:
        return "bool | None"
    if setting.is_number:
        return "int | None"
    return "_Path | None" if setting.accepts is is_path else "str | None"


def _texts(kind: Any) -> dict[str, str]:
    return {
        name: reference.__forward_arg__
        for base in (*kind.__orig_bases__, kind)
        for name, reference in getattr(base, "__annotations__", {}).items()
    }


CONNECTS: dict[str, Callable[..., object]] = {
    "connect": AeronCluster.connect,
    "async_connect": AeronCluster.async_connect,
    "AsyncAeronCluster.connect": AsyncAeronCluster.connect,
    "ReconnectingClient.connect": ReconnectingClient.connect,
    "AsyncReconnectingClient.connect": AsyncReconnectingClient.connect,
    "SessionPool.connect": SessionPool.connect,
    "from_environment": ClientContext.from_environment,
}
CHANNELS: dict[str, Any] = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"}
OWN = {
    "corelate": "correlate",
    "re_send": "resend",
    "max_wating": "max_waiting",
    "max_conecting": "max_connecting",
    "outbox_byte": "outbox_bytes",
    "polcy": "policy",
    "call_backs": "callbacks",
}


@pytest.mark.parametrize("connect", CONNECTS.values(), ids=CONNECTS)
@pytest.mark.parametrize("has_context", [False, True])
def test_misspelt_and_mistyped_settings_of_a_client_are_refused_by_name(
    connect: Callable[..., object], has_context: bool
) -> None:
    given: dict[str, Any] = dict(CHANNELS)
    if has_context:
        given = {} if connect == ClientContext.from_environment else {"context": ClientContext(**CHANNELS)}
    with pytest.raises(ConfigurationError, match="unknown setting 'mesage_timeout': did you mean 'message_timeout'"):
        connect(**given, mesage_timeout=5.0)
    with pytest.raises(ConfigurationError, match="message_timeout must be a number of seconds .*, not '5s'"):
        connect(**(CHANNELS | given), message_timeout="5s")
    with pytest.raises(ConfigurationError, match="unknown setting 'zzz': see container.client.ClientContext"):
        connect(**given, zzz=1)


@pytest.mark.parametrize(
    ("connect", "name"),
    [
        (connect, misspelt)
        for connect, known in (
            ("connect", ("corelate", "re_send")),
            ("AsyncAeronCluster.connect", ("corelate", "re_send", "max_wating")),
            ("SessionPool.connect", ("corelate", "re_send", "max_conecting")),
            ("ReconnectingClient.connect", ("corelate", "re_send", "outbox_byte", "polcy", "call_backs")),
            (
                "AsyncReconnectingClient.connect",
                ("corelate", "re_send", "outbox_byte", "polcy", "call_backs", "max_wating"),
            ),
        )
        for misspelt in known
    ],
)
def test_a_near_name_is_suggested_for_what_a_call_takes_beside_settings(connect: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown setting '{name}': did you mean '{OWN[name]}'"):
        CONNECTS[connect](**CHANNELS, **{name: None})


@pytest.mark.parametrize(
    "connect",
    [
        "connect",
        "AsyncAeronCluster.connect",
        "SessionPool.connect",
        "ReconnectingClient.connect",
        "AsyncReconnectingClient.connect",
    ],
)
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"resend": "no"}, "resend must be True or False, not 'no'"),
        ({"correlate": 5}, "correlate must be a function that returns a reply's key, not 5"),
        ({"context": "aeron:ipc"}, "context must be None or a ClientContext, not 'aeron:ipc'"),
    ],
)
def test_mistyped_arguments_are_refused_before_anything_is_opened(
    connect: str, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        CONNECTS[connect](**CHANNELS, **given)


@pytest.mark.parametrize("kind", [ReconnectingClient, AsyncReconnectingClient])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"policy": {"max_delay": 1}}, "policy must be a ReconnectPolicy or None, not {'max_delay': 1}"),
        ({"callbacks": print}, "callbacks must be a ConnectionListener or None, not <built-in"),
        ({"outbox_policy": "block"}, "outbox_policy must be an OutboxPolicy, not 'block'"),
        ({"outbox_messages": "5"}, "outbox_messages must be a whole number from 1 to 2147483647, not '5'"),
        ({"outbox_bytes": 0}, "outbox_bytes must be a whole number from 1 to 2147483647, not 0"),
        ({"resolve": "0=a:1"}, "resolve must be callable or None, not '0=a:1'"),
    ],
)
def test_mistyped_arguments_of_a_client_that_connects_again(kind: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        kind.connect(**CHANNELS, **given)


@pytest.mark.parametrize(
    ("name", "near"),
    [("error_handlr", "error_handler"), ("clint", "client"), ("enviorn", "environ"), ("mark_fil", "mark_file")],
)
def test_a_near_name_is_suggested_for_what_a_container_takes_beside_settings(name: str, near: str) -> None:
    misspelt: dict[str, Any] = {name: None}
    with pytest.raises(ConfigurationError, match=f"unknown setting '{name}': did you mean '{near}'"):
        container.Context(**misspelt)


def test_a_flag_of_a_container_is_a_flag() -> None:
    text: Any = "no"
    with pytest.raises(ConfigurationError, match="use_agent_invoker='no': must be True or False"):
        container.Context(use_agent_invoker=text)
