"""Nodes, clusters and archives as real processes, and what a test needs around them."""
