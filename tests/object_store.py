"""An S3 server in this process, and members that are copied to it."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from moto.server import ThreadedMotoServer
