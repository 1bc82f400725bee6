"""A whole member of a cluster in one process, with no JVM."""
