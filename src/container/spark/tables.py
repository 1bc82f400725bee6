"""Tables of a catalog: their options travel with their columns, as Spark passes a table's reader no others.

``CREATE TABLE … USING aeron.cluster OPTIONS (…)`` asks the source for its columns with all that the statement says. A
query of that table, by any Spark from 4.1 to 4.3, gives the reader those columns and only the options of the query. So
the first column carries the table's options in its metadata, which catalogs keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from container.common.values import shown
from container.errors import ConfigurationError
from container.spark.options import field_of

_CARRIED = "aeron.cluster.options"
_OPTION = "option."
_OF_COLUMNS = ("view", "decoder", "columns")
"""Options that decide what columns there are."""


def statement_options(properties: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a CREATE TABLE statement; None where the source is made for a read.

    Args:
        properties: what Spark passes: each option twice, once behind ``option.``, besides ``path`` as a URI, the
            table's own properties, its owner and its provider.

    Raises:
        ConfigurationError: there is no ``path``, and ``paths`` instead; or there are ``storage_options``.
    """
    given = {name.lower(): value for name, value in properties.items()}
    if "provider" not in given:
        return None
    options = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    if "storage_options" in options:
        raise ConfigurationError(
            "storage_options: a table's options go with its columns into each file that is written from them, where "
            "anybody could read the keys of your store: give storage_options with each query, or use the "
            "configuration of fsspec"
        )
    if "path" in given:
        options.setdefault("path", _without_scheme(given["path"]))
    elif "paths" in options:
        # Dropped after ALTER TABLE … SET LOCATION to a member's directory, it would take the member's files with it.
        raise ConfigurationError(
            f"paths={shown(options['paths'])}: a table without path gets a directory of its own, which Spark deletes "
            "when the table is dropped: give the same list as path"
        )
    return options


def _without_scheme(path: str) -> str:
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def carry(columns: StructType, options: Mapping[str, str]) -> StructType:
    """Put a table's options into the metadata of its first column."""
    first: Any = columns.fields[0]
    first.metadata = {**(first.metadata or {}), _CARRIED: msgspec.json.encode(options).decode()}
    return columns


def query_options(options: Mapping[str, str], columns: StructType) -> dict[str, str]:
    """The options of a read: those of the query, and where it reads a table those of the table that it does not name.

    Raises:
        ConfigurationError: the query of a table names another path or other columns, or the columns carry no options.
    """
    given = {name.lower(): value for name, value in options.items()}
    texts = [field.metadata[_CARRIED] for field in columns.fields if _CARRIED in (field.metadata or {})]
    has_path = not given.keys().isdisjoint({"path", "paths"})
    if not texts and not has_path:
        raise ConfigurationError(
            "path is missing: give the base directory of a member, its cluster directory or its archive directory. "
            "A table keeps its options with its columns: create it without naming columns, and do not change them"
        )
    if not texts:
        return given
    carried = _carried(texts[0])
    if has_path:
        raise ConfigurationError(
            "these are the columns of a table, which has its own path: read the table without path, or the path "
            "without a schema"
        )
    for name in _OF_COLUMNS:
        if given.get(name, carried.get(name)) != carried.get(name):
            raise ConfigurationError(f"{name}: a table has the columns that it was created with; create another one")
    named = {field_of(name) for name in given}
    return {name: value for name, value in carried.items() if field_of(name) not in named} | given


def _carried(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigurationError(f"the table's columns carry options that cannot be read: {error}") from None
