/* weir itself, through its public header. */
#include "peers.h"
#include "weir/host.h"

#include <stdlib.h>

static const char *backend = "host";
static weir_handle_kind standin_kind;
static weir_mempool private_pool;

void peer_weir_backend(const char *name)
{
    backend = name;
}

static int create(void *user, int device, void **handle)
{
    (void)user, (void)device;
    return (*handle = standin_create()) ? 0 : 1;
}

static int destroy(void *user, void *handle)
{
    (void)user;
    free(handle);
    return 0;
}

static int bind(void *user, void *handle, void *native_stream)
{
    (void)user;
    standin_bind(handle, (uintptr_t)native_stream);
    return 0;
}

/* Peers never touch allocated memory, and the cost of mapping files has no counterpart on a device. */
static bool omit_contents(void)
{
    return strcmp(backend, "host") != 0 || weir_host_omit_contents() == WEIR_OK;
}

static const char *open_policy(const char *policy)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    weir_device_info info = { .size = sizeof info };
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "bench", .create = create, .destroy = destroy,
                                  .bind = bind };
    settings.backend = backend;
    settings.policy = policy;
    if (weir_open(&settings) == WEIR_OK && omit_contents() && weir_device_set_current(0) == WEIR_OK &&
        weir_device_info_get(0, &info) == WEIR_OK &&
        (standin_kind || weir_handle_kind_register(&ops, &standin_kind) == WEIR_OK))
        return NULL;
    return weir_error_text();
}

static const char *open_weir(void)
{
    return open_policy("weir");
}

static const char *open_torch_rules(void)
{
    return open_policy("torch");
}

static const char *open_with_pool(void)
{
    const char *why = open_weir();
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    if (why) return why;
    return weir_mempool_create(&options, &private_pool) == WEIR_OK ? NULL : weir_error_text();
}

static void close_weir(void)
{
    WEIR_CHECK(weir_close());
}

static uint64_t default_stream(void)
{
    weir_stream stream;
    WEIR_CHECK(weir_stream_default(0, &stream));
    return stream.id;
}

static uint64_t new_stream(void)
{
    weir_stream stream;
    WEIR_CHECK(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    return stream.id;
}

static void enter(uint64_t stream)
{
    WEIR_CHECK(weir_device_set_current(0));
    WEIR_CHECK(weir_stream_set_current((weir_stream){ stream }));
}

/* Threads leave the pool when they end. */
static void enter_pool(uint64_t stream)
{
    enter(stream);
    WEIR_CHECK(weir_mempool_enter(private_pool));
}

static void *alloc_on(size_t bytes, uint64_t stream)
{
    void *pointer = NULL;
    const weir_status status = weir_alloc_on(bytes, (weir_stream){ stream }, &pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY) WEIR_CHECK(status);
    return pointer;
}

static void *alloc_current(size_t bytes, uint64_t stream)
{
    void *pointer = NULL;
    (void)stream;
    const weir_status status = weir_alloc(bytes, &pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY) WEIR_CHECK(status);
    return pointer;
}

static void *alloc_from_pool(size_t bytes, uint64_t stream)
{
    void *pointer = NULL;
    const weir_status status = weir_alloc_from(private_pool, bytes, (weir_stream){ stream }, &pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY) WEIR_CHECK(status);
    return pointer;
}

static void release(void *pointer, uint64_t stream)
{
    (void)stream;
    WEIR_CHECK(weir_free(pointer));
}

static void empty(void)
{
    WEIR_CHECK(weir_empty_cache(0));
}

static uint64_t reserved_peak(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    WEIR_CHECK(weir_stats_get(0, &stats));
    return (uint64_t)stats.reserved_bytes[WEIR_STAT_ALL].peak;
}

static uint64_t device_memory(void)
{
    weir_device_info info = { .size = sizeof info };
    WEIR_CHECK(weir_device_info_get(0, &info));
    return info.total_memory - info.free_memory;
}

static void *no_handle(weir_status status)
{
    if (status != WEIR_ERR_NO_LIBRARY) WEIR_CHECK(status);
    return NULL;
}

static void *handle_on(weir_handle_kind kind, uint64_t stream)
{
    void *handle = NULL;
    const weir_status status =
        weir_handle_get_on(kind == BENCH_STANDIN_KIND ? standin_kind : kind, (weir_stream){ stream }, &handle);
    return status == WEIR_OK ? handle : no_handle(status);
}

static void *handle_current(weir_handle_kind kind, uint64_t stream)
{
    void *handle = NULL;
    (void)stream;
    const weir_status status = weir_handle_get(kind == BENCH_STANDIN_KIND ? standin_kind : kind, &handle);
    return status == WEIR_OK ? handle : no_handle(status);
}

static void use(void *pointer, uint64_t stream)
{
    WEIR_CHECK(weir_record_stream(pointer, (weir_stream){ stream }));
}

#define WEIR_PEER(title, opener, enterer, allocator, getter)                                                           \
    { BENCH_PEER_VERSION, title,   opener, close_weir,    default_stream, new_stream, enterer,                         \
      allocator,          release, empty,  reserved_peak, device_memory,  getter,     use }

const bench_peer peer_weir = WEIR_PEER("weir", open_weir, enter, alloc_on, handle_on);
const bench_peer peer_weir_implicit = WEIR_PEER("implicit", open_weir, enter, alloc_current, handle_current);
const bench_peer peer_weir_in_pool = WEIR_PEER("in a pool", open_with_pool, enter_pool, alloc_on, handle_on);
const bench_peer peer_weir_from_pool = WEIR_PEER("from a pool", open_with_pool, enter, alloc_from_pool, handle_on);
const bench_peer peer_weir_torch_rules = WEIR_PEER("weir, torch rules", open_torch_rules, enter, alloc_on, handle_on);
