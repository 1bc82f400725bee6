"""Compares the answers that clients received with those of a service that has the whole log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from container.common.differences import NOTHING, shown_apart
from container.testing.simulation.simulated_cluster import Answer


def compare_answers(
    received: Mapping[int, Sequence[Answer]],
    wanted: Mapping[int, list[Answer]],
    find: Callable[[str, str], object],
) -> None:
    """Check that each session has received wanted answers, in their order, each once; some may be missing.

    The first one that is another goes to ``find("answers", text)``.
    """
    for session_id, answers in sorted(received.items()):
        due = wanted.get(session_id, [])
        found = 0
        for number, answer in enumerate(answers):
            try:
                found = due.index(answer, found) + 1
            except ValueError:
                # The reference's answers then, or next.
                rest = [*due[found:], NOTHING]
                left, right = shown_apart(
                    answer, next((other for other in due[found:] if other[1] == answer[1]), rest[0])
                )
                find(
                    "answers",
                    f"answer {number} to session {session_id} is {left}: the log does not lead to it there, or it came "
                    f"twice; a service that has the whole log answers {right}",
                )
                return
