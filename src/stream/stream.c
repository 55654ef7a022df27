#include "stream/stream.h"

#include "base/backoff.h"
#include "base/meta.h"
#include "stream/gate.h"

#include <assert.h>

/* Serial numbers of all streams ever; never reset, so that ids from before a weir_close stay invalid. */
static atomic_uint_fast64_t last_serial;

static int clamp_priority(const wr_stream_table *table, int priority)
{
    if (priority > table->priority_least) return table->priority_least;
    if (priority < table->priority_greatest) return table->priority_greatest;
    return priority;
}

/* Publishes a record: the id is stored last, so that a lock-free reader sees the rest. Lock held. */
static wr_stream *publish_locked(wr_stream_table *table, uint32_t index, void *native, int priority,
                                 wr_stream_owner owner)
{
    uint64_t serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
    uint64_t id = serial << (WR_STREAM_INDEX_BITS + WR_STREAM_DEVICE_BITS) |
                  (uint64_t)table->device << WR_STREAM_INDEX_BITS | index;
    wr_stream *s = &table->records[index];
    s->native = native;
    s->priority = priority;
    s->owner = owner;
    s->ending = false;
    atomic_store_explicit(&s->id, id, memory_order_release);
    return s;
}

/* Begins a record that was never used. What is set here never changes, because accounts and bins of ended streams are
 * read by it. */
static uint32_t begin_record_locked(wr_stream_table *table)
{
    const uint32_t index = table->used++;
    table->records[index].index = index;
    table->records[index].device = table->device;
    return index;
}

/* Room in free_indices is made when a record comes into use, so that retiring it cannot fail. */
static weir_status take_index_locked(wr_stream_table *table, uint32_t *index)
{
    if (table->free_count > 0) {
        *index = table->free_indices[--table->free_count];
        return WEIR_OK;
    }
    WR_ENSURE(table->used < WR_STREAM_MAX, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "device %d has %u streams, the most that weir can have; destroy some", table->device, table->used);
    WR_TRY(wr_meta_grow(&table->free_indices, &table->free_capacity, table->used + 1, sizeof *table->free_indices,
                        "stream numbers"));
    *index = begin_record_locked(table);
    return WEIR_OK;
}

weir_status wr_streams_init(wr_stream_table *table, const weir_backend *backend, int device,
                            const weir_device_caps *caps)
{
    void *records = NULL;
    WR_TRY(wr_meta_reserve(WR_STREAM_MAX * sizeof(wr_stream), "stream table", &records));
    *table = (wr_stream_table){ .backend = backend,
                                .device = device,
                                .priority_least = caps->priority_least,
                                .priority_greatest = caps->priority_greatest,
                                .records = records };
    wr_lock_init(&table->lock, WR_RANK_STREAMS, "streams");
    publish_locked(table, begin_record_locked(table), NULL, clamp_priority(table, WEIR_PRIORITY_DEFAULT),
                   WR_STREAM_DEFAULT);
    return WEIR_OK;
}

weir_status wr_streams_release(wr_stream_table *table)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < table->used; i++) {
        wr_stream *s = &table->records[i];
        if (atomic_load_explicit(&s->id, memory_order_relaxed) == 0) continue;
        if (s->owner == WR_STREAM_POOLED || s->owner == WR_STREAM_EXCLUSIVE)
            wr_keep_first(&first, wr_driver(table->backend, stream_destroy, table->device, s->native));
    }
    wr_meta_free(table->free_indices);
    wr_meta_release(table->records, WR_STREAM_MAX * sizeof(wr_stream));
    wr_lock_destroy(&table->lock);
    *table = (wr_stream_table){ 0 };
    return first;
}

/* Creates a native stream outside the lock, then gives it a record. */
static weir_status create_stream(wr_stream_table *table, int priority, wr_stream_owner owner, wr_stream **out)
{
    void *native = NULL;
    WR_TRY(wr_driver(table->backend, stream_create, table->device, priority, &native));
    uint32_t index = 0;
    wr_lock_acquire(&table->lock);
    weir_status status = take_index_locked(table, &index);
    if (status == WEIR_OK) *out = publish_locked(table, index, native, priority, owner);
    wr_lock_release(&table->lock);
    if (status != WEIR_OK) wr_clean_up(wr_driver(table->backend, stream_destroy, table->device, native));
    return status;
}

weir_status wr_stream_create(wr_stream_table *table, int priority, wr_stream **out)
{
    return create_stream(table, clamp_priority(table, priority), WR_STREAM_EXCLUSIVE, out);
}

weir_status wr_stream_from_pool(wr_stream_table *table, int priority, wr_stream **out)
{
    priority = clamp_priority(table, priority);
    uint32_t level = (uint32_t)(table->priority_least - priority);
    if (level >= WR_STREAM_PRIORITIES) level = WR_STREAM_PRIORITIES - 1;
    wr_lock_acquire(&table->lock);
    if (table->pool[level].count == WR_STREAM_POOL_SIZE) {
        uint32_t turn = table->pool[level].next++ % WR_STREAM_POOL_SIZE;
        *out = wr_stream_find(table, table->pool[level].ids[turn]);
        wr_lock_release(&table->lock);
        return WEIR_OK;
    }
    wr_lock_release(&table->lock);

    wr_stream *made = NULL;
    WR_TRY(create_stream(table, priority, WR_STREAM_POOLED, &made));
    wr_lock_acquire(&table->lock);
    bool room = table->pool[level].count < WR_STREAM_POOL_SIZE;
    if (room) table->pool[level].ids[table->pool[level].count++] = made->id;
    wr_lock_release(&table->lock);
    if (room) {
        *out = made;
        return WEIR_OK;
    }
    /* Other threads filled the pool meanwhile, so this stream is surplus. */
    wr_stream_withdraw(table, made);
    WR_TRY(wr_stream_retire(table, made));
    return wr_stream_from_pool(table, priority, out);
}

/* cudaStreamLegacy and cudaStreamPerThread, hipStreamLegacy and hipStreamPerThread: numbers in place of pointers. */
#define NATIVE_LEGACY ((void *)(uintptr_t)0x1)
#define NATIVE_PER_THREAD ((void *)(uintptr_t)0x2)

/* Its id; 0: none has it. */
static uint64_t find_native_locked(const wr_stream_table *table, const void *native)
{
    for (uint32_t i = 1; i < table->used; i++) {
        const wr_stream *s = &table->records[i];
        const uint64_t id = atomic_load_explicit(&s->id, memory_order_relaxed);
        if (id != 0 && s->native == native) return id;
    }
    return 0;
}

uint64_t wr_stream_known(wr_stream_table *table, const void *native)
{
    if (native == NULL || native == NATIVE_LEGACY)
        return atomic_load_explicit(&wr_stream_default_of(table)->id, memory_order_relaxed);
    wr_lock_acquire(&table->lock);
    const uint64_t found = find_native_locked(table, native);
    wr_lock_release(&table->lock);
    return found;
}

weir_status wr_stream_adopt(wr_stream_table *table, void *native, uint64_t *id)
{
    WR_ENSURE(
        native != NATIVE_PER_THREAD, WEIR_ERR_INVALID_ARGUMENT,
        "native stream 0x2 (cudaStreamPerThread, hipStreamPerThread) is a different stream in each thread, so one "
        "name for it would mix them up; create a stream per thread, or take one with weir_stream_from_pool()");
    weir_status status = WEIR_OK;
    uint64_t found = wr_stream_known(table, native);
    if (found) {
        *id = found;
        return WEIR_OK;
    }
    if (table->backend->stream_check) WR_TRY(wr_driver(table->backend, stream_check, table->device, native));
    wr_lock_acquire(&table->lock);
    found = find_native_locked(table, native); /* another thread may have been faster */
    if (!found) {
        uint32_t index = 0;
        status = take_index_locked(table, &index);
        if (status == WEIR_OK)
            found = publish_locked(table, index, native, WEIR_PRIORITY_DEFAULT, WR_STREAM_FOREIGN)->id;
    }
    wr_lock_release(&table->lock);
    if (status == WEIR_OK) *id = found;
    return status;
}

weir_status wr_stream_capture(const weir_backend *backend, int device, void *native, weir_capture_state *state,
                              uint64_t *id)
{
    *state = WEIR_CAPTURE_NONE;
    return backend->capture_status ? wr_driver(backend, capture_status, device, native, state, id) : WEIR_OK;
}

weir_status wr_stream_ask_capture(const weir_backend *backend, int device, void *native, weir_capture_state *state,
                                  uint64_t *id)
{
    wr_gate_enter();
    const weir_status status = wr_stream_capture(backend, device, native, state, id);
    wr_gate_leave();
    return status;
}

weir_status wr_stream_captured(const weir_backend *backend, int device, void *native, bool *captured)
{
    weir_capture_state state;
    uint64_t id;
    WR_TRY(wr_stream_capture(backend, device, native, &state, &id));
    *captured = state != WEIR_CAPTURE_NONE;
    return WEIR_OK;
}

weir_status wr_stream_ask_captured(const weir_backend *backend, int device, void *native, bool *captured)
{
    weir_capture_state state;
    uint64_t id;
    WR_TRY(wr_stream_ask_capture(backend, device, native, &state, &id));
    *captured = state != WEIR_CAPTURE_NONE;
    return WEIR_OK;
}

bool wr_stream_capturing(const weir_backend *backend, int device, void *native)
{
    bool captured = false;
    return wr_stream_captured(backend, device, native, &captured) != WEIR_OK || captured;
}

/* The lock keeps streams from being destroyed while the driver is asked about them. */
weir_status wr_streams_captured(wr_stream_table *table, bool *captured)
{
    weir_status status = WEIR_OK;
    *captured = false;
    wr_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < table->used && status == WEIR_OK && !*captured; i++) {
        const wr_stream *s = &table->records[i];
        if (atomic_load_explicit(&s->id, memory_order_relaxed) == 0) continue;
        status = wr_stream_ask_captured(table->backend, table->device, s->native, captured);
        if (status == WEIR_ERR_INVALID_STREAM) status = WEIR_OK; /* its owner has ended it: it captures nothing */
    }
    wr_lock_release(&table->lock);
    return status;
}

/* With the lock, for the same reason. */
bool wr_streams_any_busy(wr_stream_table *table)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < table->used && status != WEIR_ERR_NOT_READY; i++) {
        const wr_stream *s = &table->records[i];
        if (atomic_load_explicit(&s->id, memory_order_relaxed) == 0) continue;
        status = wr_driver(table->backend, stream_query, table->device, s->native);
    }
    wr_lock_release(&table->lock);
    return status == WEIR_ERR_NOT_READY;
}

uint32_t wr_streams_used(wr_stream_table *table)
{
    wr_lock_acquire(&table->lock);
    const uint32_t used = table->used;
    wr_lock_release(&table->lock);
    return used;
}

bool wr_stream_claim(wr_stream_table *table, wr_stream *stream, uint64_t id)
{
    wr_lock_acquire(&table->lock);
    const bool claimed = atomic_load_explicit(&stream->id, memory_order_relaxed) == id && !stream->ending;
    if (claimed) stream->ending = true;
    wr_lock_release(&table->lock);
    return claimed;
}

void wr_stream_unclaim(wr_stream_table *table, wr_stream *stream)
{
    wr_lock_acquire(&table->lock);
    stream->ending = false;
    wr_lock_release(&table->lock);
}

/* A thread that arrives after the id was cleared leaves again; one that arrived before is waited for. */
wr_stream *wr_stream_hold(const wr_stream_table *table, uint64_t id)
{
    wr_stream *s = &table->records[id & (WR_STREAM_MAX - 1)];
    atomic_fetch_add(&s->guests, 1);
    if (id != 0 && atomic_load(&s->id) == id) return s;
    wr_stream_let_go(s);
    return NULL;
}

void wr_stream_let_go(wr_stream *stream)
{
    if (stream) atomic_fetch_sub(&stream->guests, 1);
}

void wr_stream_withdraw(wr_stream_table *table, wr_stream *stream)
{
    wr_lock_acquire(&table->lock);
    atomic_store(&stream->id, 0);
    wr_lock_release(&table->lock);
    wr_backoff b = { 0 };
    while (atomic_load(&stream->guests) != 0) wr_backoff_wait(&b); /* for the few calls that they make */
}

weir_status wr_stream_retire(wr_stream_table *table, wr_stream *stream)
{
    void *native = stream->native;
    bool ours = stream->owner != WR_STREAM_FOREIGN;
    wr_lock_acquire(&table->lock);
    assert(table->free_count < table->free_capacity);
    table->free_indices[table->free_count++] = stream->index;
    wr_lock_release(&table->lock);
    return ours ? wr_driver(table->backend, stream_destroy, table->device, native) : WEIR_OK;
}
