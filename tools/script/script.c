#include "script/script.h"

#include "grow.h"
#include "map.h"
#include "ranges.h"
#include "script/ops.h"
#include "script/order.h"
#include "script/relief.h"
#include "script/start.h"

#include <assert.h>
#include <stdlib.h>

enum { BLOCK_LIVE = 1, BLOCK_PENDING, BLOCK_GONE };

/* Numbers that can be reused. */
typedef struct idle {
    uint32_t *at;
    size_t count, capacity;
} idle;

/* What is remembered of a device's last event. Only the next event shows whether a free completed at once. */
typedef struct device_state {
    uint16_t last_kind;
    uint32_t emptied; /* the private pool whose segments were given back last; 0: the default pool */
    bool free_open;   /* the last event was a free of `last_address` */
    uint64_t last_address;
    size_t last_free; /* index in the body of the last free; SIZE_MAX: none yet */
} device_state;

/* A use by another stream, from the block's free to the use's end: indices into the body, SIZE_MAX for never. */
typedef struct use {
    size_t from, to;
    int device;
    uint32_t gate;
    uint32_t slot; /* of a block that was freed before the first event */
    bool before;   /* it was; then there is no `from` */
} use;

typedef struct builder {
    script *s;
    map blocks;  /* value: the slot while live, the use while pending */
    map streams; /* value: the index; number: a pair of numbers from `pools` and `handles` */
    map handles; /* value: a small number in the order of appearance; likewise the next three */
    map pools, pool_firsts, pool_seconds;
    device_state *devices;
    bool unmaps;      /* unmapping gives memory back, as in PyTorch; weir maps it elsewhere */
    map mapped_of;    /* a pair of a device and a number from `pools` -> index into `mapped` */
    uint64_t *mapped; /* bytes */
    size_t mapped_capacity;
    idle slots;
    start_block *residents;
    size_t resident_capacity;
    use *uses; /* in the order in which they began; those from before the first event anywhere, as they ended */
    size_t use_count, use_capacity;
    reliefs reliefs;
} builder;

static void add_op(script_ops *ops, script_kind kind, uint32_t slot, uint32_t where, uint64_t bytes)
{
    script_ops_add(ops, (script_op){ .bytes = bytes, .slot = slot, .kind = kind, .where = where });
}

/* Maps equal values to equal small numbers, from 0. */
static uint32_t intern(map *m, uint64_t value)
{
    map_entry *e = map_put(m, 0, value);
    if (!e->state) e->value = (uint32_t)m->count - 1;
    e->state = 1;
    return e->value;
}

static uint64_t pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static uint32_t pool_index_of(builder *b, const uint64_t pool[2])
{
    return intern(&b->pools, pair(intern(&b->pool_firsts, pool[0]), intern(&b->pool_seconds, pool[1])));
}

/* Private pools share no blocks, just as streams do not, so a stream in another pool counts as another stream. */
static uint32_t stream_index(builder *b, int16_t device, uint64_t number, const uint64_t pool[2])
{
    const uint32_t pool_index = pool_index_of(b, pool);
    map_entry *e = map_put(&b->streams, device, pair(pool_index, intern(&b->handles, number)));
    if (e->state) return e->value;

    script *s = b->s;
    s->streams = grow_array(s->streams, s->stream_count + 1, &s->stream_capacity, sizeof *s->streams);
    s->streams[s->stream_count] = (script_stream){ number, device, pool_index };
    e->state = 1;
    e->value = (uint32_t)s->stream_count++;
    return e->value;
}

static void put_idle(idle *from, uint32_t number)
{
    from->at = grow_array(from->at, from->count + 1, &from->capacity, sizeof *from->at);
    from->at[from->count++] = number;
}

static uint32_t take_slot(builder *b)
{
    if (b->slots.count) return b->slots.at[--b->slots.count];
    return (uint32_t)b->s->slots++;
}

static void complete(builder *b, map_entry *e)
{
    assert(b->uses); /* `e` is pending, so it has a use */
    b->uses[e->value].to = b->s->body.count;
    add_op(&b->s->body, SCRIPT_COMPLETE, 0, 0, 0);
    e->state = BLOCK_GONE;
}

static void free_now(builder *b, map_entry *e)
{
    add_op(&b->s->body, SCRIPT_FREE, e->value, 0, 0);
    b->s->operations++;
    put_idle(&b->slots, e->value);
    e->state = BLOCK_GONE;
}

static uint32_t stream_of(builder *b, const weir_event *event)
{
    return stream_index(b, event->device, event->stream, event->pool);
}

/* A block that no event allocated: it existed before the trace. */
static map_entry *add_resident(builder *b, int16_t device, uint64_t address, uint64_t bytes, uint32_t stream)
{
    script *s = b->s;
    b->residents = grow_array(b->residents, s->residents + 1, &b->resident_capacity, sizeof *b->residents);
    /* A fresh slot, since a slot reused within the trace is not free at its beginning. */
    uint32_t slot = (uint32_t)s->slots++;
    b->residents[s->residents++] =
        (start_block){ .address = address, .bytes = bytes, .slot = slot, .stream = stream, .device = device };

    map_entry *e = map_put(&b->blocks, device, address);
    e->state = BLOCK_LIVE;
    e->value = slot;
    return e;
}

static void on_alloc(builder *b, const weir_event *event)
{
    map_entry *e = map_put(&b->blocks, event->device, event->address);
    if (e->state == BLOCK_LIVE || e->state == BLOCK_PENDING) b->s->anomalies++;
    if (e->state == BLOCK_LIVE) free_now(b, e);
    if (e->state == BLOCK_PENDING) complete(b, e);

    e->state = BLOCK_LIVE;
    e->value = take_slot(b);
    add_op(&b->s->body, SCRIPT_ALLOC, e->value, stream_of(b, event), event->size);
    b->s->operations++;
}

static void on_free(builder *b, const weir_event *event)
{
    map_entry *e = map_find(&b->blocks, event->device, event->address);
    if (!e) e = add_resident(b, event->device, event->address, event->size, stream_of(b, event));
    if (e->state != BLOCK_LIVE) {
        b->s->anomalies++;
        return;
    }
    free_now(b, e);
    device_state *d = &b->devices[event->device];
    d->free_open = true;
    d->last_free = b->s->body.count - 1;
    d->last_address = event->address;
}

/* The event after the device's last free was not its completion: another stream still uses the block. */
static void free_was_early(builder *b, int device)
{
    device_state *d = &b->devices[device];
    d->free_open = false;
    map_entry *e = map_find(&b->blocks, (int16_t)device, d->last_address);
    b->uses = grow_array(b->uses, b->use_count + 1, &b->use_capacity, sizeof *b->uses);
    b->uses[b->use_count] = (use){ .from = d->last_free, .to = SIZE_MAX, .device = device };
    b->s->body.at[d->last_free].kind = SCRIPT_FREE_LATER;
    e->state = BLOCK_PENDING;
    e->value = (uint32_t)b->use_count++;
}

/* The resident's free was requested before the first event, too. */
static void was_freed(builder *b, map_entry *e, int16_t device)
{
    b->uses = grow_array(b->uses, b->use_count + 1, &b->use_capacity, sizeof *b->uses);
    b->uses[b->use_count] = (use){ .to = SIZE_MAX, .device = device, .slot = e->value, .before = true };
    e->state = BLOCK_PENDING;
    e->value = (uint32_t)b->use_count++;
}

static void complete_resident(builder *b, const weir_event *event)
{
    map_entry *e = add_resident(b, event->device, event->address, event->size, stream_of(b, event));
    const uint32_t slot = e->value;
    was_freed(b, e, event->device);
    complete(b, e);
    put_idle(&b->slots, slot);
}

static void on_completed(builder *b, const weir_event *event)
{
    map_entry *e = map_find(&b->blocks, event->device, event->address);
    if (!e) {
        complete_resident(b, event);
    } else if (e->state == BLOCK_PENDING) {
        complete(b, e);
    } else {
        if (e->state == BLOCK_LIVE) free_now(b, e);
        b->s->anomalies++;
    }
}

static void note_segment(script *s, const weir_event *event)
{
    s->segments = grow_array(s->segments, s->segment_count + 1, &s->segment_capacity, sizeof *s->segments);
    s->segments[s->segment_count++] =
        (script_segment){ event->address, event->size, event->stream, (weir_event_kind)event->kind, event->device };
}

static void on_given_back(builder *b, const weir_event *event)
{
    device_state *d = &b->devices[event->device];
    const bool begins = !trace_kind_gives(d->last_kind);
    reliefs_gave(&b->reliefs, event, begins);
    if (begins) d->emptied = 0;
    const uint32_t pool = pool_index_of(b, event->pool);
    if (pool != 0 && pool != d->emptied) add_op(&b->s->body, SCRIPT_EMPTY_POOL, 0, stream_of(b, event), 0);
    d->emptied = pool;
}

static uint64_t *mapped_in(builder *b, int device, uint32_t pool)
{
    const size_t known = b->mapped_of.count;
    const uint32_t index = intern(&b->mapped_of, pair((uint32_t)device, pool));
    b->mapped = grow_array(b->mapped, b->mapped_of.count, &b->mapped_capacity, sizeof *b->mapped);
    if (b->mapped_of.count > known) b->mapped[index] = 0;
    return &b->mapped[index];
}

/* Where unmapped memory may be mapped elsewhere, a private pool that has none left gave it back. */
static void on_mapping(builder *b, const weir_event *event)
{
    const uint32_t pool = pool_index_of(b, event->pool);
    if (pool == 0) return;
    uint64_t *mapped = mapped_in(b, event->device, pool);
    const bool gone = trace_kind_gives(event->kind) && event->size == *mapped;
    if (trace_kind_takes(event->kind))
        *mapped += event->size;
    else
        *mapped -= event->size < *mapped ? event->size : *mapped; /* some may have been mapped before the first event */
    if (gone) add_op(&b->s->body, SCRIPT_EMPTY_POOL, 0, stream_of(b, event), 0);
}

/* PyTorch's torch.cuda.graph() empties the cache first. */
static bool begins_capture(builder *b, const weir_event *event)
{
    const size_t known = b->pools.count;
    return event->pool[0] != 0 && pool_index_of(b, event->pool) >= known;
}

static void on_taken(builder *b, const weir_event *event)
{
    const device_state *d = &b->devices[event->device];
    const bool captures = begins_capture(b, event);
    reliefs_took(&b->reliefs, event, trace_kind_gives(d->last_kind), captures, d->last_free);
}

static void on_memory(builder *b, const weir_event *event)
{
    if (!trace_kind_maps(event->kind)) note_segment(b->s, event);
    if (trace_kind_gives(event->kind))
        on_given_back(b, event);
    else
        on_taken(b, event);
}

/* The events around a failed allocation are read as if it were not there, unless it explains those before it. */
static void on_refused(builder *b, const weir_event *event)
{
    script *s = b->s;
    device_state *d = &b->devices[event->device];
    if (s->refused++ == 0) s->refused_first = event->size;
    if (reliefs_failed(&b->reliefs, event, d->last_free)) d->last_kind = WEIR_EVENT_OOM;
    add_op(&s->body, SCRIPT_REFUSED, 0, stream_of(b, event), event->size);
}

static void on_event(builder *b, const weir_event *event)
{
    device_state *d = &b->devices[event->device];
    bool completes = event->kind == WEIR_EVENT_FREE_COMPLETED && event->address == d->last_address;
    if (event->kind == WEIR_EVENT_SEGMENT_MAP) b->s->expandable = true;
    if (trace_kind_maps(event->kind) && !b->unmaps) {
        on_mapping(b, event);
        return;
    }

    switch (event->kind) {
    case WEIR_EVENT_ALLOC:
        if (d->free_open) free_was_early(b, event->device);
        reliefs_allocated(&b->reliefs, event);
        on_alloc(b, event);
        break;
    case WEIR_EVENT_FREE_REQUESTED:
        if (d->free_open) free_was_early(b, event->device);
        reliefs_freed(&b->reliefs, event->device);
        on_free(b, event);
        break;
    case WEIR_EVENT_FREE_COMPLETED:
        reliefs_ended(&b->reliefs, event);
        if (d->free_open && !completes) free_was_early(b, event->device);
        if (!d->free_open) on_completed(b, event);
        d->free_open = false;
        break;
    case WEIR_EVENT_SEGMENT_ALLOC:
    case WEIR_EVENT_SEGMENT_FREE:
    case WEIR_EVENT_SEGMENT_MAP:
    case WEIR_EVENT_SEGMENT_UNMAP:
        if (d->free_open) free_was_early(b, event->device);
        on_memory(b, event);
        break;
    case WEIR_EVENT_OOM: on_refused(b, event); return;
    default: return;
    }
    d->last_kind = event->kind;
}

static int by_place(const void *left, const void *right)
{
    const start_block *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

static void allocate_residents(builder *b)
{
    script *s = b->s;
    if (!b->residents) return;
    /* In address order, as a fresh allocator would lay them out. */
    qsort(b->residents, s->residents, sizeof *b->residents, by_place);
    for (size_t i = 0; i < s->residents; i++) {
        const start_block *r = &b->residents[i];
        add_op(&s->before, SCRIPT_ALLOC, r->slot, r->stream, r->bytes);
    }
}

/* Chooses the gate for a use: of the device's gates whose last use ends before this one, the one where it ends latest.
 * So uses of one gate end in the order in which they began, and gates are as few as possible. `lanes` has one byte for
 * each gate; the later its last use ends, the lower the address. */
static uint32_t gate_for(ranges *lanes, script *s, const use *u)
{
    const range *best = ranges_find(lanes, (int16_t)u->device, UINT64_MAX - u->to);
    range lane = { .address = UINT64_MAX - u->to, .bytes = 1, .device = (int16_t)u->device };
    lane.number = best && best->device == u->device ? best->number : (uint32_t)s->gate_count++;
    if (best && best->device == u->device) ranges_cut(lanes, best->device, best->address, 1, NULL, NULL);
    ranges_add(lanes, lane);
    return lane.number;
}

static void open_gate(builder *b, ranges *lanes, use *u)
{
    script *s = b->s;
    u->gate = gate_for(lanes, s, u);
    s->gates[u->gate] = u->device;
    if (u->to != SIZE_MAX) s->body.at[u->to].where = u->gate;
    if (u->before)
        add_op(&s->before, SCRIPT_FREE_LATER, u->slot, u->gate, 0);
    else
        s->body.at[u->from].where = u->gate;
}

static void open_gates(builder *b)
{
    script *s = b->s;
    ranges lanes = { 0 };
    s->gates = grow_new(b->use_count + (size_t)s->devices, sizeof *s->gates);
    for (size_t i = 0; i < b->use_count; i++)
        if (b->uses[i].before) open_gate(b, &lanes, &b->uses[i]);
    for (size_t i = 0; i < b->use_count; i++)
        if (!b->uses[i].before) open_gate(b, &lanes, &b->uses[i]);
    for (size_t i = 0; i < b->use_count; i++)
        if (b->uses[i].to == SIZE_MAX) add_op(&s->after, SCRIPT_COMPLETE, 0, b->uses[i].gate, 0);
    ranges_release(&lanes);
}

static uint32_t number_segment(void *user, int16_t device, uint64_t stream, const uint64_t pool[2], bool mapped)
{
    builder *b = user;
    (void)mapped;
    return device >= 0 && device < b->s->devices ? stream_index(b, device, stream, pool) : 0;
}

static void finish(builder *b, const trace *t)
{
    script *s = b->s;
    for (int device = 0; device < s->devices; device++)
        if (b->devices[device].free_open) free_was_early(b, device);

    for (size_t i = 0; i < t->live_count; i++) {
        const trace_live *l = &t->live[i];
        if (map_find(&b->blocks, l->device, l->address)) continue;
        map_entry *e = add_resident(b, l->device, l->address, l->requested ? l->requested : l->bytes,
                                    stream_index(b, l->device, l->stream, l->pool));
        b->residents[s->residents - 1].held = l->bytes;
        if (l->pending) was_freed(b, e, l->device);
    }
    allocate_residents(b);
    for (size_t i = 0; i < b->blocks.capacity; i++) {
        const map_entry *e = &b->blocks.entries[i];
        if (e->state == BLOCK_LIVE) add_op(&s->after, SCRIPT_FREE, e->value, 0, 0);
    }
    open_gates(b);
    reliefs_settle(&b->reliefs);
    start_make(s, t, b->residents, number_segment, b);
}

/* The highest device index + 1; -1, with error[] set, when a device is negative. */
static int count_devices(const trace *t, char *error, size_t error_size)
{
    int highest = -1;
    for (size_t i = 0; i < t->count + t->live_count; i++) {
        bool event = i < t->count;
        int device = event ? t->events[i].device : t->live[i - t->count].device;
        if (device < 0) {
            snprintf(error, error_size, "%s %zu is on device %d, which is not a device", event ? "event" : "live block",
                     event ? i : i - t->count, device);
            return -1;
        }
        if (device > highest) highest = device;
    }
    return highest + 1;
}

static uint64_t recorded_duration(const trace *t)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < t->count; i++) {
        const uint64_t time = t->events[i].time_ns;
        if (time < first) first = time;
        if (time > last) last = time;
    }
    return last > first ? last - first : 0;
}

bool script_build(const trace *t, script *out, char *error, size_t error_size)
{
    *out = (script){ 0 };
    /* Slots are numbered in 32 bits, streams and gates in 29; no event makes more than one of each. */
    if (t->count + t->live_count >= UINT32_C(1) << 29) {
        snprintf(error, error_size, "the trace has %zu events; at most %u can be replayed", t->count, 1U << 29);
        return false;
    }
    int devices = count_devices(t, error, error_size);
    if (devices < 0) return false;

    out->devices = devices;
    out->duration_ns = recorded_duration(t);
    builder b = { .s = out,
                  .devices = grow_new((size_t)devices, sizeof *b.devices),
                  .unmaps = t->settings.expandable_segments };

    for (int device = 0; device < devices; device++) b.devices[device].last_free = SIZE_MAX;
    reliefs_open(&b.reliefs, t, out);
    (void)intern(&b.pools, pair(intern(&b.pool_firsts, 0), intern(&b.pool_seconds, 0))); /* the default pool is 0 */
    order o;
    order_make(t, devices, b.unmaps, &o);
    for (size_t i = 0; i < t->count; i++) on_event(&b, &t->events[order_event(&o, i)]);
    order_release(&o);
    finish(&b, t);

    map_release(&b.blocks);
    map_release(&b.streams);
    map_release(&b.handles);
    map_release(&b.pools);
    map_release(&b.mapped_of);
    free(b.mapped);
    map_release(&b.pool_firsts);
    map_release(&b.pool_seconds);
    free(b.devices);
    free(b.slots.at);
    free(b.residents);
    free(b.uses);
    reliefs_release(&b.reliefs);
    return true;
}

bool script_is_playable(const script *sc, char error[SCRIPT_ERROR])
{
    enum { DEVICES_MAX = 64 }; /* that the host back end can have */
    if (sc->devices <= DEVICES_MAX) return true;
    snprintf(error, SCRIPT_ERROR, "the trace has %d devices; at most %d can be replayed", sc->devices, DEVICES_MAX);
    return false;
}

const script_op *script_relieved(const script *s, const script_op *from)
{
    const script_op *next = from + 1 + from->slot, *end = s->body.at + s->body.count;
    if (next >= end || (next->kind != SCRIPT_ALLOC && next->kind != SCRIPT_REFUSED)) return NULL;
    return s->streams[next->where].device == (int)from->where ? next : NULL;
}

void script_release(script *s)
{
    free(s->before.at);
    free(s->body.at);
    free(s->after.at);
    free(s->streams);
    free(s->gates);
    free(s->held);
    free(s->segments);
    start_release(&s->start);
    *s = (script){ 0 };
}
