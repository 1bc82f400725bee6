"""An archive: the client of one, and what a native one is made of."""
