# The layout of a driver's counters: one record of metadata and one of values each (upstream: Agrona's CountersReader).
cdef enum:
    METADATA_LENGTH = 512
    TYPE_ID_OFFSET = 4
    FREE_FOR_REUSE_DEADLINE_OFFSET = 8
    KEY_OFFSET = 16
    MAX_KEY_LENGTH = 112
    LABEL_LENGTH_OFFSET = 128
    LABEL_OFFSET = 132
    MAX_LABEL_LENGTH = 380

    VALUE_LENGTH = 128
    REGISTRATION_ID_OFFSET = 8
    OWNER_ID_OFFSET = 16
    REFERENCE_ID_OFFSET = 24
