"""What the adapters call with what they decoded: implemented by the agent of the consensus module."""

class ConsensusEventHandler:
    """Base of the agent. An event that is not handled is passed over."""
