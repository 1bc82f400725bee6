# What a connect shares with a pool of sessions.
from container.transport.streams cimport Subscription

cdef enum:
    PROTOCOL_VERSION = 3 << 8                           # 0.3.0


cdef str response_channel_of(Subscription subscription)
cdef object session_refusal(str what, int code, str detail, str where)     # the exception for a session that is refused
