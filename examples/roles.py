"""An authorisation service for a cluster and for its archive: operators may do everything, other users may read.

It decides by the principal that an authenticator has given to a client. ``examples/guard.py`` gives the user's name.
:class:`Origin` is for the archives of several members, who bring no credentials to each other: it lets everybody in,
and knows only who is in shared memory. Name them in the settings, and operators in the environment of the node::

    [consensus_module]
    authenticator = "examples.guard:Guard"
    authorisation_service = "examples.roles:Roles"

    [archive]
    authenticator = "examples.roles:Origin"
    authorisation_service = "examples.roles:Roles"

Everybody who has a session may send messages to the service: the service itself decides about them, by
``session.encoded_principal``.
"""

from __future__ import annotations

import os

from container.archive.authentication import Authenticator, SessionProxy
from container.codecs.messages import MESSAGE_NAMES

OPERATORS_VARIABLE = "CLUSTER_OPERATORS"
PROTOCOLS = {101: "archive", 111: "cluster"}
"""Schemas by their ids."""
READS = {
    "KeepAliveRequest",
    "ArchiveIdRequest",
    "ListRecordingsRequest",
    "ListRecordingsForUriRequest",
    "ListRecordingRequest",
    "FindLastMatchingRecordingRequest",
    "ListRecordingSubscriptionsRequest",
    "StartPositionRequest",
    "RecordingPositionRequest",
    "StopPositionRequest",
    "MaxRecordedPositionRequest",
    "ReplayRequest",
    "BoundedReplayRequest",
    "ReplayTokenRequest",
    "StopReplayRequest",
}
"""Requests that change no recording."""


class Origin(Authenticator):
    """Accepts every client; its principal is ``local`` in shared memory, and empty on the network."""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        """Accept it."""
        session.authenticate(b"local" if session.is_local else b"")


class Roles:
    """Allows operators, and clients in shared memory, everything; others the requests in :data:`READS`."""

    def __init__(self, operators: str | None = None) -> None:
        names = os.environ.get(OPERATORS_VARIABLE, "") if operators is None else operators
        self._operators = {b"local", *names.encode().split()}

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        """Whether the principal may do what a message of this schema and template asks for."""
        if encoded_principal in self._operators:
            return True
        return MESSAGE_NAMES[PROTOCOLS[protocol_id]].get(action_id) in READS
