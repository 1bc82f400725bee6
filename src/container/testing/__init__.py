"""What tests of a clustered service need: an in-memory transport, and real Java nodes started as processes.

Front door of the process side, which needs the extra ``cluster``
(``pip install "aeron-cluster-container[cluster]"``) and never loads the Aeron C library:

- :mod:`container.testing.java`: find a JVM, resolve Aeron's jar with its checksum verified, compile Java.
- :mod:`container.testing.process`: a program that cannot outlive its parent, and :func:`wait_until`.
- :mod:`container.testing.endpoints`: ports that are free, and where the members of a cluster listen.
- :mod:`container.testing.node`: a member of a cluster, Java's ``ClusteredMediaDriver``, as a process.
- :mod:`container.testing.cluster`: clusters of 1, 3 or 5 members with their services, and handles to each part.
- :mod:`container.testing.network`: a network of their own, from which members can be cut off (Linux, as root).
- :mod:`container.testing.recordings`: snapshots and other recordings, read from the files of a member.
"""
