"""What a client hears from the consensus module itself: events of its session, challenges, leaders, admin responses."""
