"""Types of `egress_poller`."""

from container.transport import FragmentHandler, Subscription

class EgressPoller(FragmentHandler):
    """Holds the last answer that was read from ``subscription``, until the next poll."""

    def __init__(self, subscription: Subscription) -> None: ...
