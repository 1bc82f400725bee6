"""Types of `egress_poller`."""

from typing import final

from container.transport.streams import FragmentHandler, Subscription

@final
class EgressPoller(FragmentHandler):
    """Holds the last answer that was read from ``subscription``, until the next poll."""

    def __init__(self, subscription: Subscription) -> None: ...
