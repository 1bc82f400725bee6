"""What an archive has on its disk: catalog, segment files, positions of active recordings, and their recovery."""
