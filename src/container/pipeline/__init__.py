"""Whole pipelines over recordings of clusters, on Spark: also the command ``aeron-cluster pipeline``."""
