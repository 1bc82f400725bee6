"""One setting: its name, default, unit and range; and the functions that make one as a field of a dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from container.common.quantities import format_duration, format_size
from container.common.semantic_version import format_version
from container.common.values import is_path

INT32 = (-(2**31), 2**31 - 1)
INT32_MAX = 2**31 - 1
MAX_SERVICE_COUNT = 10
_MAX_DURATION_NS = 2**62  # 146 years: a time of day in nanoseconds may be added


@dataclass(kw_only=True)  # not frozen: a program makes some 200 when it starts
class Setting:
    """The description of one setting; a dataclass of settings has one for each attribute."""

    property: str
    """Upstream's system property."""
    doc: str
    default_value: Any
    allowed_text: str
    """The values that it may have, in words; empty where the range says it."""
    unit: str = ""
    """"ns", "ms", "bytes", "version" or "": what the number counts."""
    least: int = 0
    most: int = 0
    multiple_of: int = 1
    is_power_of_two: bool = False
    accepts: Callable[[str], bool] | None = None
    choices: tuple[object, ...] = ()
    shown: str = ""
    """The text shown for a default of None."""
    name: str = ""

    @cached_property
    def variable(self) -> str:
        """The environment variable."""
        return self.property.upper().replace(".", "_")

    @cached_property
    def allowed(self) -> str:
        """The values that it may have, as a message or the table of settings says it."""
        if self.allowed_text:
            return self.allowed_text
        found = _format_range(self.least, self.most, self.unit)
        if not self.is_power_of_two and self.multiple_of == 1:
            return found
        kind = "a power of two" if self.is_power_of_two else f"a multiple of {self.multiple_of}"
        return f"{kind} from {found.removeprefix('a whole number from ')}"

    @cached_property
    def default(self) -> str:
        """The default as the table of settings shows it."""
        return self.shown or _format_value(self.default_value, self.unit)

    @cached_property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return self.choices == (True, False)

    @cached_property
    def is_number(self) -> bool:
        """Whether it is a whole number."""
        return not self.choices and self.accepts is None

    def allows(self, value: object) -> bool:
        """Whether a value has the setting's type and is in its range."""
        if self.is_flag:
            return isinstance(value, bool)
        if self.is_number:
            return isinstance(value, int) and not isinstance(value, bool) and self._is_in_range(value)
        if self.choices:
            return isinstance(value, str) and value in self.choices
        return isinstance(value, str) and self.accepts is not None and self.accepts(value)

    def _is_in_range(self, number: int) -> bool:
        if not self.least <= number <= self.most or number % self.multiple_of:
            return False
        return not self.is_power_of_two or number & (number - 1) == 0


def setting_field(prop: str, doc: str, default: Any, **details: Any) -> Any:
    """An attribute of a dataclass of settings, with what is known of it."""
    setting = Setting(property=prop, doc=doc, default_value=default, **details)
    return field(default=default, metadata={"setting": setting})


def table_of(kind: type) -> dict[str, Setting]:
    """The settings of a dataclass by name, in the order in which they are documented."""
    found = {}
    for each in fields(kind):
        found[each.name] = setting = each.metadata["setting"]
        setting.name = each.name
    return found


def table_rows(table: dict[str, Setting]) -> list[str]:
    """The rows that document the settings, in Markdown."""
    return [
        f"| `{setting.name}` | `{setting.variable}` | {setting.default} | {setting.allowed} | {setting.doc} |"
        for setting in table.values()
    ]


def number_field(
    prop: str,
    doc: str,
    default: int | None,
    least: int,
    most: int,
    *,
    unit: str = "",
    shown: str = "",
    multiple_of: int = 1,
    is_power_of_two: bool = False,
) -> Any:
    """A setting that is a whole number; ``shown`` stands for a default that is None."""
    return setting_field(
        prop,
        doc,
        default,
        allowed_text="",
        least=least,
        most=most,
        unit=unit,
        shown=shown,
        multiple_of=multiple_of,
        is_power_of_two=is_power_of_two,
    )


def duration_field(prop: str, doc: str, default_ns: int | None, *, least: int = 1, shown: str = "") -> Any:
    """A setting that is a time in nanoseconds."""
    return number_field(prop, doc, default_ns, least, _MAX_DURATION_NS, unit="ns", shown=shown)


def text_field(
    prop: str,
    doc: str,
    default: str | None,
    accepts: Callable[[str], bool] = bool,
    allowed_text: str = "a non-empty string",
    *,
    shown: str = "",
) -> Any:
    """A setting that is a text which the function accepts."""
    return setting_field(prop, doc, default, allowed_text=allowed_text, accepts=accepts, shown=shown)


def path_field(prop: str, doc: str, default: str | None, *, shown: str = "") -> Any:
    """A setting that is the path of a file or directory."""
    return text_field(prop, doc, default, is_path, "a path in UTF-8, not empty and without NUL", shown=shown)


def channel_field(prop: str, doc: str, default: str | None, *, shown: str = "") -> Any:
    """A setting that is a channel of any medium; ``shown`` stands for a default that is None."""
    return text_field(prop, doc, default, is_channel, "an Aeron channel in ASCII", shown=shown)


def object_path_field(prop: str, doc: str, *, shown: str = "") -> Any:
    """A setting that names something in a module."""
    return text_field(prop, doc, None, is_object_path, "package.module:Name", shown=shown)


def is_ascii(text: str) -> bool:
    """Whether a text is all printable ASCII, with at least one character."""
    return bool(text) and text.isascii() and text.isprintable()


def is_channel(text: str) -> bool:
    """Whether a text looks like a channel of Aeron."""
    prefix, _, rest = text.partition(":")
    return prefix in ("aeron", "aeron-spy") and is_ascii(rest) and " " not in rest


def is_ipc_channel(text: str) -> bool:
    """Whether a text looks like a channel within one machine."""
    medium, question_mark, parameters = text.partition("?")
    return medium == "aeron:ipc" and is_channel(text) and bool(parameters) == bool(question_mark)


def is_udp_channel(text: str) -> bool:
    """Whether a text looks like a channel over UDP, which may reach other machines."""
    return text.startswith("aeron:udp?") and is_channel(text)


def is_object_path(text: str) -> bool:
    """Whether a text is a module and a name in it."""
    names = text.split(":")
    return len(names) == 2 and all(names) and not any(character.isspace() for character in text)


def flag_field(prop: str, doc: str, default: bool) -> Any:
    """A setting that is true or false."""
    return setting_field(prop, doc, default, allowed_text="true or false", choices=(True, False))


def choice_field(prop: str, doc: str, default: str, choices: tuple[str, ...]) -> Any:
    """A setting that is one of a few texts."""
    return setting_field(prop, doc, default, allowed_text="one of " + ", ".join(choices), choices=choices)


def _format_range(least: int, most: int, unit: str) -> str:
    if unit == "version":
        return f"{format_version(least)} to {format_version(most)}"
    if unit == "bytes":
        return f"{least} to {most} bytes, or a string such as 1m, 16m"
    if unit:
        examples = "100us, 2ms, 1s" if unit == "ns" and least < 1_000_000 else "500ms, 2s"
        return f"{least} to {most} {unit}, or a string such as {examples}"
    return f"a whole number from {least} to {most}"


def _format_value(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if unit == "version":
        text = format_version(value)
    elif unit == "bytes":
        text = format_size(value)
    elif unit:
        text = format_duration(value * 1_000_000 if unit == "ms" else value)
    else:
        text = str(value)
    return f"`{text}`"
