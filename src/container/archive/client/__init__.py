"""The client of an archive: record, replay, and keep snapshots."""
