"""What the container asks of an archive: record, replay, and keep snapshots."""
