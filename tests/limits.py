"""How long a test waits for a state. It continues as soon as the state is there, so a busy machine may take its
time."""

LIMIT_S = 180.0
