# The types of container.transport.duration_tracker, which is compiled.
from typing import final

from container.transport.counters import Counter

@final
class DurationTracker:
    max_counter: Counter
    exceeded_counter: Counter
    threshold_ns: int
    def __init__(self, max_counter: Counter, exceeded_counter: Counter, threshold_ns: int) -> None: ...
