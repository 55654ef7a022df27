/*
 * Finds uses of memory on streams that it is not ordered with. weir sees only the uses and waits that go through it.
 */
#include "base/thread_number.h"
#include "device/debug_internal.h"
#include "observe/stacks.h"
#include "pool/address.h"
#include "pool/report/inspect.h"

#include <inttypes.h>

static bool looks(const wr_device *device)
{
    return device->cache.debug && device->cache.debug->flags & WR_DEBUG_STREAMS;
}

uint64_t wr_debug_moment(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

enum {
    WAITS = 1 << 10, /* remembered, of all devices */
    REACHED = 64,    /* streams that one may wait for, directly or through others */
    HOST = 0         /* in place of a stream's id: work that the host has waited for is over for every stream */
};

typedef struct waited {
    uint64_t moment;
    uint64_t waiter, other; /* other 0: all streams of the device */
    int device;
} waited;

/* For all devices, since streams of one may wait for those of another. */
static struct {
    wr_lock lock;
    waited ring[WAITS];
    uint64_t count;
} waits = { .lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "debug: waits") };

/* Inside a capture a wait is an edge of the graph, and orders nothing else. */
void wr_debug_wait(const wr_device *device, const wr_stream *stream, const wr_stream *other)
{
    if (!looks(device)) return;
    /* The stream that waits for one in a capture is in that by now; the host cannot wait for one. */
    bool captured = false;
    if (stream &&
        (wr_stream_ask_captured(device->backend, device->ordinal, stream->native, &captured) != WEIR_OK || captured))
        return;
    wr_lock_acquire(&waits.lock);
    waits.ring[waits.count++ % WAITS] = (waited){ .moment = wr_debug_moment(),
                                                  .waiter = stream ? atomic_load(&stream->id) : HOST,
                                                  .other = other ? atomic_load(&other->id) : 0,
                                                  .device = device->ordinal };
    wr_lock_release(&waits.lock);
}

/* Streams whose work up to some moment is over before what the later stream does now. As is_ordered() moves that moment
 * back in time, the set grows. */
typedef struct reached {
    uint64_t streams[REACHED];
    unsigned count;
    uint64_t devices; /* bits: all streams of these devices */
} reached;

static bool has(const reached *r, uint64_t stream)
{
    if (stream != HOST && r->devices >> wr_stream_id_device(stream) & 1) return true;
    for (unsigned i = 0; i < r->count; i++)
        if (r->streams[i] == stream) return true;
    return false;
}

/* Whether what `later` does now comes after what `earlier` was doing at the moment `since`. True in doubt. */
static bool is_ordered(uint64_t later, uint64_t earlier, uint64_t since)
{
    reached r = { .streams = { HOST, later }, .count = 2 };
    bool found = later == earlier;
    wr_lock_acquire(&waits.lock);
    for (uint64_t n = waits.count; !found && n > 0; n--) {
        const waited *w = &waits.ring[(n - 1) % WAITS];
        if (waits.count - n == WAITS || r.count == REACHED) found = true; /* too long ago, too many streams */
        if (found || w->moment <= since) break;
        if (!has(&r, w->waiter)) continue;
        if (w->other == 0)
            r.devices |= UINT64_C(1) << w->device;
        else if (!has(&r, w->other))
            r.streams[r.count++] = w->other;
        found = has(&r, earlier);
    }
    wr_lock_release(&waits.lock);
    return found;
}

static const wr_stream *find_stream(uint64_t id)
{
    const wr_device *d = wr_runtime_opened(wr_stream_id_device(id));
    return d ? wr_stream_find(&d->streams, id) : NULL;
}

/* The default stream and a stream that the program made may be ordered by the driver itself. */
static bool driver_orders(const wr_stream *a, const wr_stream *b)
{
    return a->device == b->device && ((a->owner == WR_STREAM_DEFAULT && b->owner == WR_STREAM_FOREIGN) ||
                                      (a->owner == WR_STREAM_FOREIGN && b->owner == WR_STREAM_DEFAULT));
}

/* Whether `later` may run concurrently with that use. The work of a stream that has ended is over. */
static bool may_meet(uint64_t later, const wr_seen *use)
{
    const wr_stream *a = find_stream(later), *b = find_stream(use->stream_id);
    return a && b && a != b && !driver_orders(a, b) && !is_ordered(later, use->stream_id, use->moment);
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

void wr_debug_found(wr_device *device, weir_event_kind what, const wr_known *k, uint64_t stream, uint32_t stack)
{
    const uint32_t call = wr_stack_now;
    wr_stack_now = stack;
    wr_cache_lock(&device->cache);
    device->cache.stats.stream_misuses++;
    wr_history_record(&device->cache.history, what, k->base, k->bytes, (void *)(uintptr_t)stream, k->pool);
    wr_cache_unlock(&device->cache);
    wr_stack_now = call;
}

/* Of a stack that is not known nobody can say that it is the same. */
static bool was_told_locked(const wr_debug *d, const wr_told *finding)
{
    if (finding->first == 0 || finding->second == 0) return false;
    for (unsigned i = 0; i < d->told_count; i++)
        if (d->told[i].what == finding->what && d->told[i].first == finding->first &&
            d->told[i].second == finding->second)
            return true;
    return false;
}

bool wr_debug_is_new(wr_device *device, weir_event_kind what, uint32_t first, uint32_t second)
{
    wr_debug *d = device->cache.debug;
    const wr_told finding = { what, first, second };
    wr_lock_acquire(&d->lock);
    const bool new = !was_told_locked(d, &finding);
    const bool room = d->told_count < WR_DEBUG_TOLD, says_so = new && !room && !d->told_all;
    if (new && room) d->told[d->told_count++] = finding;
    if (says_so) d->told_all = true;
    wr_lock_release(&d->lock);
    if (says_so)
        wr_log(WR_LOG_WARN, "debug=streams: %d different findings were reported; any further one is counted only",
               WR_DEBUG_TOLD);
    return new && room;
}

void wr_debug_log_call(wr_log_level level, const char *title, const wr_call *c)
{
    char text[WR_DEBUG_TEXT] = "";
    wr_debug_put_call(text, sizeof text, title, c);
    if (text[0]) wr_log(level, "%s", text + 1);
}

uint64_t wr_debug_stream_number(uint64_t stream_id)
{
    const wr_stream *s = find_stream(stream_id);
    return s ? (uint64_t)(uintptr_t)s->native : 0;
}

static void tell_unrecorded(wr_device *device, const wr_known *k, const wr_seen *use, wr_call here)
{
    const uint64_t stream = wr_debug_stream_number(use->stream_id);
    wr_debug_found(device, WEIR_EVENT_UNRECORDED_USE, k, stream, use->call.stack);
    if (!wr_debug_is_new(device, WEIR_EVENT_UNRECORDED_USE, use->call.stack, here.stack)) return;
    wr_log(WR_LOG_ERROR,
           "weir_free: the block at %p (%zu bytes, stream %#" PRIx64 ") was used on stream %#" PRIx64
           " by %s; that use was not recorded, and the block's own stream does not wait for it, so the memory may be "
           "reused too early. Call weir_record_stream() before weir_free(), or allocate it on the stream that uses it",
           (void *)k->base, k->bytes, wr_debug_stream_number(k->stream_id), stream, use->by);
    wr_debug_log_call(WR_LOG_ERROR, "allocated", &k->allocated);
    wr_debug_log_call(WR_LOG_ERROR, "used", &use->call);
    wr_debug_log_call(WR_LOG_ERROR, "freed", &here);
}

static void tell_beside(wr_device *device, const wr_known *k, const wr_seen *use, const wr_seen *before)
{
    const uint64_t stream = wr_debug_stream_number(use->stream_id);
    wr_debug_found(device, WEIR_EVENT_UNORDERED_USE, k, stream, use->call.stack);
    if (!wr_debug_is_new(device, WEIR_EVENT_UNORDERED_USE, before->call.stack, use->call.stack)) return;
    wr_log(WR_LOG_ERROR,
           "%s: the block at %p (%zu bytes, stream %#" PRIx64 ") is used on stream %#" PRIx64
           ", which does not wait for stream %#" PRIx64
           ", where %s may still be using the same memory. Call weir_stream_wait() in between",
           use->by, (void *)k->base, k->bytes, wr_debug_stream_number(k->stream_id), stream,
           wr_debug_stream_number(before->stream_id),
           before->by ? before->by : "whatever used the block that was freed there");
    wr_debug_log_call(WR_LOG_ERROR, "allocated", &k->allocated);
    wr_debug_log_call(WR_LOG_ERROR, before->by ? "used first" : "freed before", &before->call);
    wr_debug_log_call(WR_LOG_ERROR, "used", &use->call);
}

static void tell_suspect(wr_device *device, const wr_known *k, const wr_stream *current, wr_call here)
{
    const uint64_t stream = (uint64_t)(uintptr_t)current->native;
    wr_debug_found(device, WEIR_EVENT_SUSPECT_FREE, k, stream, here.stack);
    if (!wr_debug_is_new(device, WEIR_EVENT_SUSPECT_FREE, k->allocated.stack, here.stack)) return;
    wr_log(
        WR_LOG_WARN,
        "weir_free: the block at %p (%zu bytes) was allocated while stream %#" PRIx64
        " was current, and is freed while stream %#" PRIx64
        " is current, which was not recorded and which the block's own stream does not wait for. If that other stream "
        "uses the block, call weir_record_stream() before weir_free(), or allocate the block on that stream",
        (void *)k->base, k->bytes, wr_debug_stream_number(k->stream_id), stream);
    wr_debug_log_call(WR_LOG_WARN, "allocated", &k->allocated);
    wr_debug_log_call(WR_LOG_WARN, "freed", &here);
}

/* ---- what happens to a block ------------------------------------------------------------------------------------- */

void wr_debug_streams_made_locked(const wr_debug *d, wr_known *made, const wr_known *before)
{
    if (!(d->flags & WR_DEBUG_STREAMS)) return;
    made->allocated_at = wr_debug_moment();
    /* The block's own stream is ordered after earlier uses of the memory; other streams are once they wait for it. */
    if (before && !before->live && !before->direct && before->freed_at && before->departed == made->departed)
        made->uses[0] =
            (wr_seen){ .stream_id = made->stream_id, .moment = before->freed_at, .call = before->freed, .wrote = true };
}

void wr_debug_streams_recorded_locked(wr_known *k, uint64_t stream_id)
{
    if (k->recorded_count < WR_DEBUG_RECORDED) k->recorded_on[k->recorded_count] = stream_id;
    if (k->recorded_count <= WR_DEBUG_RECORDED) k->recorded_count++;
}

static bool is_recorded(const wr_known *k, uint64_t stream_id)
{
    for (unsigned i = 0; i < k->recorded_count && i < WR_DEBUG_RECORDED; i++)
        if (k->recorded_on[i] == stream_id) return true;
    return k->recorded_count > WR_DEBUG_RECORDED;
}

/* What comes after a use of the same stream comes after that stream's earlier ones of the same kind. Else the oldest
 * use is forgotten; the moment of none is 0. */
static wr_seen *place_for(wr_known *k, const wr_seen *use)
{
    wr_seen *oldest = &k->uses[0];
    for (unsigned i = 0; i < WR_DEBUG_USES; i++) {
        wr_seen *u = &k->uses[i];
        if (u->stream_id == use->stream_id && u->wrote <= use->wrote) return u;
        if (u->moment < oldest->moment) oldest = u;
    }
    return oldest;
}

/* Notes the use; *before is what was known until then. False: debug knows no live block there. */
static bool note_use(wr_debug *d, const char *base, const wr_seen *use, wr_known *before)
{
    wr_lock_acquire(&d->lock);
    wr_known *k = *wr_debug_link_locked(d, base);
    const bool found = k && k->live;
    if (found) {
        *before = *k;
        *place_for(k, use) = *use;
    }
    wr_lock_release(&d->lock);
    return found;
}

void wr_debug_use(const wr_device *device, const wr_stream *stream, const void *pointer, bool writes, const char *by,
                  const void *caller)
{
    wr_segment *segment = wr_address_find(pointer);
    weir_pointer_info info = { 0 };
    wr_known k;
    if (!segment || wr_cache_is_host(segment->cache)) return;
    wr_device *home = wr_device_of(segment->cache);
    if (!looks(home) || wr_debug_captures(device, stream)) return;
    if (wr_inspect_pointer(segment, pointer, &info) != WEIR_OK) return;
    const wr_seen use = { .stream_id = atomic_load(&stream->id),
                          .moment = wr_debug_moment(),
                          .call = { wr_stacks_take(caller), wr_thread_number() },
                          .by = by,
                          .wrote = writes };
    if (!note_use(home->cache.debug, info.base, &use, &k)) return;
    for (unsigned i = 0; i < WR_DEBUG_USES; i++)
        if (k.uses[i].stream_id && (k.uses[i].wrote || writes) && may_meet(use.stream_id, &k.uses[i])) {
            tell_beside(home, &k, &use, &k.uses[i]);
            return;
        }
}

/* The block is freed while another stream is current than at its allocation: that stream may have used it. */
static bool is_suspect(const wr_known *k, const wr_stream *current)
{
    if (!k->implicit || !current) return false;
    const wr_seen maybe = { .stream_id = atomic_load(&current->id), .moment = k->allocated_at };
    return !is_recorded(k, maybe.stream_id) && may_meet(k->stream_id, &maybe);
}

void wr_debug_streams_freed(wr_device *device, const wr_known *k, const wr_stream *current, wr_call here)
{
    if (!looks(device) || wr_captures_any(&device->captures)) return;
    for (unsigned i = 0; i < WR_DEBUG_USES; i++) {
        const wr_seen *use = &k->uses[i];
        if (use->stream_id && !is_recorded(k, use->stream_id) && may_meet(k->stream_id, use)) {
            tell_unrecorded(device, k, use, here);
            return;
        }
    }
    if (is_suspect(k, current)) tell_suspect(device, k, current, here);
}
