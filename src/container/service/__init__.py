"""The member's side of a service: agent, adapters, proxy, sessions, snapshots."""
