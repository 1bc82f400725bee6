"""Finds the counters by which an archive shows how far its recordings are (type 100)."""
