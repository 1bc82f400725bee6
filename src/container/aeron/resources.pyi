# Types of container.aeron.resources: what an AeronClient adds.
from typing import final

from container.transport.counters import Counter, Counters
from container.transport.streams import Image, PendingAdd, Publication, Subscription

@final
class AeronPublication(Publication): ...

@final
class AeronExclusivePublication(AeronPublication): ...  # type: ignore[misc]

@final
class AeronSubscription(Subscription): ...

@final
class AeronImage(Image): ...

@final
class AeronPendingDestination(PendingAdd): ...

@final
class AeronCounters(Counters): ...

@final
class AeronCounter(Counter): ...
