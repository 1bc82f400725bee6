"""Tools for operators of a node: the words of ``aeron-cluster`` that read its files and counters, or control it."""
