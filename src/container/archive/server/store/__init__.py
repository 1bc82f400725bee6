"""An archive's files: catalog, segment files, positions of active recordings, and their recovery."""
