"""Files that Aeron's processes share: mark file, error log, CnC file, the archive's catalog, the recording log."""
