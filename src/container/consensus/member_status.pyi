"""The present state of a member, its role, its term and its leader."""

from typing import Any, final

from container.consensus.cluster_member import ClusterMember

@final
class MemberStatus:
    """State, role, leadership term and leader of this member."""

    state: int
    role: int
    leadership_term_id: int
    leader: ClusterMember

    def __init__(self, context: Any, leader: ClusterMember) -> None: ...
