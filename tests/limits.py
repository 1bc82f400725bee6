"""How long a test waits for a state. It goes on as soon as the state is there, so a busy machine may take its time."""

LIMIT_S = 180.0
