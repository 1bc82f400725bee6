"""What the adapters call with what they decoded: implemented by the agent of the consensus module."""

from container.agent.agent import Agent

class ConsensusEventHandler(Agent):
    """Base of the agent. An event that is not handled is passed over."""
