"""The command ``aeron-cluster``: its words and options, and how it reports why it could not start."""
