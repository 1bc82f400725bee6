"""The seam over a media driver. Only this package knows the C library of Aeron, which is loaded at first use."""

from __future__ import annotations

from container.aeron.client import AeronClient
from container.aeron.library import library_path, library_version, load_library
from container.aeron.media_driver import (
    MediaDriver,
    default_aeron_dir,
    driver_absence,
    read_cnc_file_page_size,
    wait_for_driver,
)

__all__ = [
    "AeronClient",
    "MediaDriver",
    "default_aeron_dir",
    "driver_absence",
    "library_path",
    "library_version",
    "load_library",
    "read_cnc_file_page_size",
    "wait_for_driver",
]
