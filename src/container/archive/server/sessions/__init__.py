"""The archive's work for its clients: a state machine for each task, and the requests that reach them."""
