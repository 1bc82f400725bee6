"""The consensus module's hash map: it behaves as a dict does, whatever the keys."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.consensus.long_map import LongMap

EXTREMES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**32, 2**63 - 1)
KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 40),
    st.integers(0, 40).map(lambda number: number << 56),  # differ in their highest bits alone
    st.sampled_from(EXTREMES),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "get"]), KEYS, st.integers(0, 2**63 - 1)), max_size=300))
def test_a_map_is_as_a_dict(calls: list[tuple[str, int, int]]) -> None:
    numbers, model = LongMap(), dict[int, int]()
    for name, key, value in calls:
        if name == "put":
            numbers.put(key, value)
            model[key] = value
        elif name == "remove":
            assert numbers.remove(key) == model.pop(key, -1)
        assert numbers.get(key) == model.get(key, -1)
        assert len(numbers) == len(model)
    assert {key: numbers.get(key) for key in model} == model


def test_removed_keys_leave_nothing_behind_that_a_search_would_pass() -> None:
    numbers = LongMap()
    for key in range(200_000):
        numbers.put(key, key)
        assert numbers.remove(key - 7) == (key - 7 if key >= 7 else -1)
    assert len(numbers) == 7


@pytest.mark.parametrize("step", [1, 3, 1 << 32, 1 << 40, -(1 << 50)])
def test_a_map_grows_and_loses_nothing(step: int) -> None:
    numbers = LongMap()
    for number in range(5_000):
        numbers.put(number * step, number)
    assert [numbers.get(number * step) for number in range(5_000)] == list(range(5_000))
    assert [numbers.remove(number * step) for number in range(0, 5_000, 2)] == list(range(0, 5_000, 2))
    assert [numbers.get(number * step) for number in range(5_000)] == [
        number if number % 2 else -1 for number in range(5_000)
    ]


def test_a_negative_value_is_refused_and_changes_nothing() -> None:
    numbers = LongMap()
    numbers.put(1, 2)
    with pytest.raises(ValueError, match="value -1 is negative"):
        numbers.put(1, -1)
    assert (numbers.get(1), len(numbers)) == (2, 1)
