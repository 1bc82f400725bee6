"""The archive itself: it records, replays and copies what its clients ask for, in a directory of its own."""
