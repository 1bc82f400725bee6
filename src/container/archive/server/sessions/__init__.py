"""What an archive does for its clients: a state machine for each of its tasks, and the requests that reach them."""
