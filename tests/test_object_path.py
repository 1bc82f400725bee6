"""Classes by their path: what cannot be imported or made is reported with the line of the user's that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.common.object_path import create_object, load_object
from container.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "reason", "line", "function"),
    [
        ("class A:\n    def __init__(self):\n        open('/no/such/file')", "FileNotFoundError", 3, "A.__init__"),
        ("import json\nclass A:\n    def __init__(self):\n        json.loads('{')", "JSONDecodeError", 4, "A.__init__"),
        ("value = 1\nvalue / 0", "ZeroDivisionError", 2, "<module>"),
    ],
)
def test_the_line_of_the_user_s_that_failed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, line: int, function: str
) -> None:
    name = f"failing_{reason.lower()}"
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        create_object(f"{name}:A", "service")
    assert f": {reason}: " in str(refused.value)
    assert str(refused.value).endswith(f' (File "{file}", line {line}, in {function})')


def test_a_module_that_is_missing_has_no_line() -> None:
    with pytest.raises(ConfigurationError, match="No module named 'no_such_module': start in the directory"):
        create_object("no_such_module:A", "service")


@pytest.mark.parametrize(
    ("method", "fix"),
    [
        ("on_session_mesage", "did you mean that by on_session_mesage?"),
        ("onSessionMessage", "did you mean that by onSessionMessage?"),
        ("on_order", "write def on_session_message(self, ...)"),
    ],
)
def test_a_callback_that_a_class_must_have_is_named_with_what_was_meant_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, fix: str
) -> None:
    name = f"lacking_{method}"
    (tmp_path / f"{name}.py").write_text(
        f"from container import ClusteredService\nclass A(ClusteredService):\n    def {method}(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        create_object(f"{name}:A", "service")
    assert str(refused.value) == f"service='{name}:A': A has no on_session_message(): {fix}"


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("../my_service:Counter", "my_service:Counter"),
        (".:x", "my_service:x"),
        ("..my_service:x", "my_service:x"),
        ("a/b.py:X", "b:X"),
        ("my_service.py:Counter", "my_service:Counter"),
    ],
)
def test_a_path_where_a_module_must_be_is_refused_with_the_name_to_give(path: str, fix: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_object(path, "service")
    assert str(refused.value) == (
        f"service='{path}': must begin with the name of a module, not with a path: give '{fix}', and start in the "
        "directory that has it, or add that to PYTHONPATH"
    )


def test_a_module_is_no_object_of_a_module() -> None:
    with pytest.raises(ConfigurationError, match="^service='json:decoder': is a module: name a class or a function in"):
        load_object("json:decoder", "service")


@pytest.mark.parametrize("path", ["a" * 3000 + ":X", "json:" + "b" * 3000, "../" + "c" * 3000 + ":X"])
def test_a_very_long_name_is_cut_in_the_error(path: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_object(path, "service")
    assert len(str(refused.value)) < 500
