# Declarations of the official Aeron C client and media driver (aeronc.h, aeronmd.h, from 1.51.0 on), and
# nothing else.
#
# No function here is linked: `library.pyx` looks each one up at run time and puts it into the tables below.
# A member has the name of the C function without its prefix `aeron_`. Functions for both shared and exclusive
# publications are declared once, over an untyped pointer.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdbool.h>
    typedef struct aeron_context_stct aeron_context_t;
    typedef struct aeron_stct aeron_t;
    typedef struct aeron_client_registering_resource_stct aeron_async_t;
    typedef struct aeron_subscription_stct aeron_subscription_t;
    typedef struct aeron_image_stct aeron_image_t;
    typedef struct aeron_counter_stct aeron_counter_t;
    typedef struct aeron_counters_reader_stct aeron_counters_reader_t;
    typedef struct aeron_header_stct aeron_header_t;
    typedef struct aeron_driver_context_stct aeron_driver_context_t;
    typedef struct aeron_driver_stct aeron_driver_t;
    """
    ctypedef bint bool_t "bool"
    ctypedef struct aeron_context_t:
        pass
    ctypedef struct aeron_t:
        pass
    ctypedef struct aeron_async_t:              # any add that the driver has not answered yet
        pass
    ctypedef struct aeron_subscription_t:
        pass
    ctypedef struct aeron_image_t:
        pass
    ctypedef struct aeron_counter_t:
        pass
    ctypedef struct aeron_counters_reader_t:
        pass
    ctypedef struct aeron_header_t:
        pass
    ctypedef struct aeron_driver_context_t:
        pass
    ctypedef struct aeron_driver_t:
        pass


cdef enum:
    AERON_NULL_COUNTER_ID = -1

    AERON_MAX_CLIENT_NAME_LENGTH = 100
    AERON_MAX_COUNTER_KEY_LENGTH = 112
    AERON_MAX_COUNTER_LABEL_LENGTH = 380
    AERON_MAX_ADDRESS_LENGTH = 64
    AERON_MAX_REASON_LENGTH = 1023

    # Codes of errors; the C client reports them negated in aeron_errcode(), beside positive errno values.
    AERON_ERROR_CODE_RESOURCE_TEMPORARILY_UNAVAILABLE = 10
    AERON_CLIENT_ERROR_DRIVER_TIMEOUT = 1000
    AERON_CLIENT_ERROR_CLIENT_TIMEOUT = 1001
    AERON_CLIENT_ERROR_CONDUCTOR_SERVICE_TIMEOUT = 1002

    AERON_THREADING_MODE_DEDICATED = 0
    AERON_THREADING_MODE_SHARED_NETWORK = 1
    AERON_THREADING_MODE_SHARED = 2
    AERON_THREADING_MODE_INVOKER = 3


cdef packed struct aeron_header_values_t:
    int32_t frame_length
    signed char version
    uint8_t flags
    int16_t type
    int32_t term_offset
    int32_t session_id
    int32_t stream_id
    int32_t term_id
    int64_t reserved_value
    int32_t initial_term_id
    size_t position_bits_to_shift


cdef struct aeron_publication_constants_t:
    const char* channel
    int64_t original_registration_id
    int64_t registration_id
    int64_t max_possible_position
    size_t position_bits_to_shift
    size_t term_buffer_length
    size_t max_message_length
    size_t max_payload_length
    int32_t stream_id
    int32_t session_id
    int32_t initial_term_id
    int32_t publication_limit_counter_id
    int32_t channel_status_indicator_id


cdef struct aeron_subscription_constants_t:
    const char* channel
    void* on_available_image
    void* on_unavailable_image
    int64_t registration_id
    int32_t stream_id
    int32_t channel_status_indicator_id


cdef struct aeron_image_constants_t:
    aeron_subscription_t* subscription
    const char* source_identity
    int64_t correlation_id
    int64_t join_position
    size_t position_bits_to_shift
    size_t term_buffer_length
    size_t mtu_length
    int32_t session_id
    int32_t initial_term_id
    int32_t subscriber_position_id


cdef struct aeron_counter_constants_t:
    int64_t correlation_id
    int64_t registration_id
    int32_t counter_id


cdef struct aeron_counters_reader_buffers_t:
    uint8_t* values
    uint8_t* metadata
    size_t values_length
    size_t metadata_length


# Handlers. The conductor calls all but the first two, on its own thread unless the client is in invoker mode.
ctypedef int (*aeron_controlled_fragment_handler_t)(
    void* clientd, const uint8_t* buffer, size_t length, aeron_header_t* header) noexcept
ctypedef void (*aeron_block_handler_t)(
    void* clientd, const uint8_t* buffer, size_t length, int32_t session_id, int32_t term_id) noexcept
ctypedef void (*aeron_on_available_image_t)(
    void* clientd, aeron_subscription_t* subscription, aeron_image_t* image) noexcept nogil
ctypedef void (*aeron_error_handler_t)(void* clientd, int errcode, const char* message) noexcept nogil
ctypedef void (*aeron_on_unavailable_counter_t)(
    void* clientd, aeron_counters_reader_t* reader, int64_t registration_id,
    int32_t counter_id) noexcept nogil
ctypedef void (*aeron_on_close_client_t)(void* clientd) noexcept nogil
ctypedef void (*aeron_notification_t)(void* clientd) noexcept nogil


cdef struct AsyncAddFunctions:                  # what can be done with an add that is under way
    int (*poll)(void** resource, aeron_async_t* async_) noexcept nogil
    int (*cancel)(aeron_t* client, aeron_async_t* async_) noexcept nogil


cdef struct DestinationFunctions:               # of a subscription or a publication; these cannot be cancelled
    int (*async_add)(aeron_async_t** async_, aeron_t* client, void* owner, const char* uri) noexcept nogil
    int (*async_remove)(aeron_async_t** async_, aeron_t* client, void* owner, const char* uri) noexcept nogil
    int (*poll)(aeron_async_t* async_) noexcept nogil


cdef struct PublicationFunctions:               # once for shared and once for exclusive publications
    int (*async_add)(
        aeron_async_t** async_, aeron_t* client, const char* uri, int32_t stream_id) noexcept nogil
    AsyncAddFunctions adding
    int (*constants)(void* publication, aeron_publication_constants_t* constants) noexcept nogil
    int64_t (*offer)(
        void* publication, const uint8_t* buffer, size_t length, void* supplier, void* clientd) noexcept nogil
    int64_t (*offerv)(
        void* publication, const void* iov, size_t iovcnt, void* supplier, void* clientd) noexcept nogil
    int64_t (*try_claim)(void* publication, size_t length, void* buffer_claim) noexcept nogil
    int64_t (*position)(void* publication) noexcept nogil
    int64_t (*position_limit)(void* publication) noexcept nogil
    DestinationFunctions destinations
    bool_t (*is_connected)(void* publication) noexcept nogil
    bool_t (*is_closed)(void* publication) noexcept nogil
    int (*close)(void* publication, aeron_notification_t on_complete, void* clientd) noexcept nogil


cdef struct ClientFunctions:
    int (*version_major)() noexcept nogil
    int (*version_minor)() noexcept nogil
    int (*version_patch)() noexcept nogil
    int (*errcode)() noexcept nogil             # of the calling thread
    const char* (*errmsg)() noexcept nogil
    int (*default_path)(char* path, size_t path_length) noexcept nogil

    int (*context_init)(aeron_context_t** context) noexcept nogil
    int (*context_close)(aeron_context_t* context) noexcept nogil
    int (*context_set_dir)(aeron_context_t* context, const char* value) noexcept nogil
    int (*context_set_client_name)(aeron_context_t* context, const char* value) noexcept nogil
    int (*context_set_driver_timeout_ms)(aeron_context_t* context, uint64_t value) noexcept nogil
    int (*context_set_keepalive_interval_ns)(aeron_context_t* context, uint64_t value) noexcept nogil
    int (*context_set_use_conductor_agent_invoker)(aeron_context_t* context, bool_t value) noexcept nogil
    int (*context_set_error_handler)(
        aeron_context_t* context, aeron_error_handler_t handler, void* clientd) noexcept nogil
    int (*context_set_on_unavailable_counter)(
        aeron_context_t* context, aeron_on_unavailable_counter_t handler, void* clientd) noexcept nogil
    int (*context_set_on_close_client)(
        aeron_context_t* context, aeron_on_close_client_t handler, void* clientd) noexcept nogil

    int (*init)(aeron_t** client, aeron_context_t* context) noexcept nogil
    int (*start)(aeron_t* client) noexcept nogil
    int (*close)(aeron_t* client) noexcept nogil
    int (*main_do_work)(aeron_t* client) noexcept nogil
    bool_t (*is_closed)(aeron_t* client) noexcept nogil
    int64_t (*client_id)(aeron_t* client) noexcept nogil
    int64_t (*next_correlation_id)(aeron_t* client) noexcept nogil
    aeron_counters_reader_t* (*counters_reader)(aeron_t* client) noexcept nogil
    int (*counters_reader_get_buffers)(
        aeron_counters_reader_t* reader, aeron_counters_reader_buffers_t* buffers) noexcept nogil
    int (*async_next_session_id)(aeron_async_t** async_, aeron_t* client, int32_t stream_id) noexcept nogil
    AsyncAddFunctions next_session_id           # polls into an int32_t; cannot be cancelled

    PublicationFunctions shared
    PublicationFunctions exclusive
    int64_t (*exclusive_publication_offer_block)(
        void* publication, const uint8_t* buffer, size_t length) noexcept nogil
    int64_t (*exclusive_publication_append_padding)(void* publication, size_t length) noexcept nogil
    void (*exclusive_publication_revoke_on_close)(void* publication) noexcept nogil

    int (*async_add_subscription)(
        aeron_async_t** async_, aeron_t* client, const char* uri, int32_t stream_id,
        aeron_on_available_image_t on_available_image, void* available_clientd,
        void* on_unavailable_image, void* unavailable_clientd) noexcept nogil
    AsyncAddFunctions adding_subscription
    DestinationFunctions subscription_destinations
    int (*subscription_constants)(
        aeron_subscription_t* subscription, aeron_subscription_constants_t* constants) noexcept nogil
    bool_t (*subscription_is_connected)(aeron_subscription_t* subscription) noexcept nogil
    bool_t (*subscription_is_closed)(aeron_subscription_t* subscription) noexcept nogil
    int (*subscription_image_count)(aeron_subscription_t* subscription) noexcept nogil
    # Both retain the image that they return.
    aeron_image_t* (*subscription_image_by_session_id)(
        aeron_subscription_t* subscription, int32_t session_id) noexcept nogil
    aeron_image_t* (*subscription_image_at_index)(
        aeron_subscription_t* subscription, size_t index) noexcept nogil
    int (*subscription_resolved_endpoint)(
        aeron_subscription_t* subscription, char* address, size_t address_length) noexcept nogil
    int (*subscription_close)(
        aeron_subscription_t* subscription, aeron_notification_t on_complete, void* clientd) noexcept nogil

    int (*image_release)(aeron_image_t* image) noexcept nogil
    int (*image_constants)(aeron_image_t* image, aeron_image_constants_t* constants) noexcept nogil
    int64_t (*image_position)(aeron_image_t* image) noexcept nogil
    int64_t (*image_end_of_stream_position)(aeron_image_t* image) noexcept nogil
    bool_t (*image_is_end_of_stream)(aeron_image_t* image) noexcept nogil
    bool_t (*image_is_closed)(aeron_image_t* image) noexcept nogil
    int (*image_active_transport_count)(aeron_image_t* image) noexcept nogil
    int (*image_reject)(aeron_image_t* image, const char* reason) noexcept nogil    # not of one that is closed
    # The polls call the handler, which needs the GIL.
    int (*image_controlled_poll)(
        aeron_image_t* image, aeron_controlled_fragment_handler_t handler, void* clientd,
        size_t fragment_limit) noexcept
    int (*image_bounded_controlled_poll)(
        aeron_image_t* image, aeron_controlled_fragment_handler_t handler, void* clientd,
        int64_t limit_position, size_t fragment_limit) noexcept
    int (*image_block_poll)(
        aeron_image_t* image, aeron_block_handler_t handler, void* clientd, size_t block_length_limit) noexcept
    int (*header_values)(aeron_header_t* header, aeron_header_values_t* values) noexcept nogil

    int (*async_add_counter)(
        aeron_async_t** async_, aeron_t* client, int32_t type_id, const uint8_t* key, size_t key_length,
        const char* label, size_t label_length) noexcept nogil
    AsyncAddFunctions adding_counter
    int64_t* (*counter_addr)(aeron_counter_t* counter) noexcept nogil
    int (*counter_constants)(aeron_counter_t* counter, aeron_counter_constants_t* constants) noexcept nogil
    int (*counter_close)(
        aeron_counter_t* counter, aeron_notification_t on_complete, void* clientd) noexcept nogil


cdef struct DriverFunctions:
    int (*errcode)() noexcept nogil
    const char* (*errmsg)() noexcept nogil
    int (*context_init)(aeron_driver_context_t** context) noexcept nogil
    int (*context_close)(aeron_driver_context_t* context) noexcept nogil
    int (*context_set_dir)(aeron_driver_context_t* context, const char* value) noexcept nogil
    int (*context_set_dir_warn_if_exists)(aeron_driver_context_t* context, bool_t value) noexcept nogil
    int (*context_set_dir_delete_on_start)(aeron_driver_context_t* context, bool_t value) noexcept nogil
    int (*context_set_dir_delete_on_shutdown)(aeron_driver_context_t* context, bool_t value) noexcept nogil
    int (*context_set_threading_mode)(aeron_driver_context_t* context, int mode) noexcept nogil
    int (*context_set_term_buffer_length)(aeron_driver_context_t* context, size_t value) noexcept nogil
    int (*context_set_ipc_term_buffer_length)(aeron_driver_context_t* context, size_t value) noexcept nogil
    int (*context_set_counters_buffer_length)(aeron_driver_context_t* context, size_t value) noexcept nogil
    int (*context_set_mtu_length)(aeron_driver_context_t* context, size_t value) noexcept nogil
    int (*context_set_ipc_mtu_length)(aeron_driver_context_t* context, size_t value) noexcept nogil
    int (*context_set_receiver_io_vector_capacity)(aeron_driver_context_t* context, uint32_t value) noexcept nogil
    int (*context_set_network_publication_max_messages_per_send)(
        aeron_driver_context_t* context, uint32_t value) noexcept nogil
    int (*context_set_term_buffer_sparse_file)(aeron_driver_context_t* context, bool_t value) noexcept nogil
    int (*context_set_client_liveness_timeout_ns)(
        aeron_driver_context_t* context, uint64_t value) noexcept nogil
    int (*context_set_image_liveness_timeout_ns)(
        aeron_driver_context_t* context, uint64_t value) noexcept nogil
    int (*context_set_publication_linger_timeout_ns)(
        aeron_driver_context_t* context, uint64_t value) noexcept nogil
    int (*context_set_timer_interval_ns)(aeron_driver_context_t* context, uint64_t value) noexcept nogil
    # How packets are received; NULL where a library has none of it.
    void** (*context_get_udp_channel_transport_bindings)(aeron_driver_context_t* context) noexcept nogil
    int (*context_set_udp_channel_transport_bindings)(aeron_driver_context_t* context, void** value) noexcept nogil
    void* udp_channel_transport_recvmmsg
    int (*init)(aeron_driver_t** driver, aeron_driver_context_t* context) noexcept nogil
    int (*start)(aeron_driver_t* driver, bool_t manual_main_loop) noexcept nogil
    int (*main_do_work)(aeron_driver_t* driver) noexcept nogil
    int (*close)(aeron_driver_t* driver) noexcept nogil
