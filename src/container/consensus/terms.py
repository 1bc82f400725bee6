"""Which leadership terms a member can be asked to go to: one rule for members in an election and in a term."""

from __future__ import annotations

from container.errors import ClusterError

MOST_TERMS_AHEAD = 1 << 32
"""So far a member goes at once: nobody misses more elections, and a message that is damaged or forged costs no more.

A member that names a newer term again means it: it voted in that one, or leads it. One such message after the other
brings the member that hears it nearer, as far each time: else who has gone too far would stay alone for ever.
"""


def unreachable(term_id: int, newest_term_id: int, message: str, member_id: int) -> ClusterError | None:
    """Why a message for a term is ignored, where nobody gets from the newest term known here to that one at once.

    A member that persisted the last term there is would leave none to elect a leader in.

    Args:
        term_id: leadership or candidate term that the message names.
        newest_term_id: newest one this member knows.
        message: name of the message, as in the schema.
        member_id: its sender.
    """
    if term_id - newest_term_id <= MOST_TERMS_AHEAD:
        return None
    return ClusterError(
        f"{message} of member {member_id} is ignored: its term {term_id} is more than {MOST_TERMS_AHEAD} beyond "
        f"{newest_term_id}, the newest one here"
    )
