#include "script/start.h"

#include "grow.h"
#include "script/config.h"
#include "script/native.h"
#include "script/ops.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_MOST (UINT64_C(1) << 48) /* beyond any device's */

static const char ASTRAY[] = "blocks from before it overlap, or lie in no segment that it names";

/* A block of a size that requests are rounded from: it gets its place once nothing else is free. Until then that is
 * filled. */
typedef struct filled {
    const start_block *block;
    size_t first, count; /* slots of what fills it */
    uint32_t stream;
} filled;

typedef struct maker {
    script *script;
    config config;
    const start_block *blocks;
    size_t next;        /* of the blocks */
    uint64_t max_split; /* what is asked for from here on gets a block whole */
    const range *segment;
    uint64_t at; /* where the next block begins in the segment */
    filled *filled;
    size_t filled_count, filled_capacity;
} maker;

static bool fail(maker *m, const char *why)
{
    m->script->start.unknown = why;
    return false;
}

static void add(maker *m, script_kind kind, uint64_t slot, uint64_t bytes)
{
    script_ops_add(&m->script->start.ops,
                   (script_op){ .bytes = bytes, .slot = (uint32_t)slot, .kind = kind, .where = m->segment->number });
}

static bool is_small(const maker *m)
{
    return m->segment->bytes == NATIVE_SMALL_SEGMENT;
}

/* The size of the block that a request of so many bytes gets. */
static uint64_t rounded(const maker *m, uint64_t bytes)
{
    const uint64_t size = config_round(&m->config, bytes);
    return size ? (size + NATIVE_UNIT - 1) / NATIVE_UNIT * NATIVE_UNIT : NATIVE_UNIT;
}

/* The largest size up to so many bytes, a multiple of the unit, that is not rounded. */
static uint64_t unrounded(const maker *m, uint64_t bytes)
{
    uint64_t low = 1, high = bytes / NATIVE_UNIT;
    while (low < high) {
        const uint64_t middle = high - (high - low) / 2;
        if (rounded(m, middle * NATIVE_UNIT) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return rounded(m, low * NATIVE_UNIT);
}

/* What to ask for to get the segment: of a small one the half. The whole of a large one, so far as that is not rounded;
 * one of the usual size comes for less, too. */
static uint64_t request_for(const maker *m, uint64_t segment)
{
    if (segment == NATIVE_SMALL_SEGMENT) return NATIVE_SMALL_MOST;
    const uint64_t most = unrounded(m, segment);
    const bool too_little = segment - most >= NATIVE_SEGMENT_UNIT;
    return too_little && segment == NATIVE_LARGE_SEGMENT ? 2 * NATIVE_SMALL_MOST : most;
}

/* Nothing else is free after that, so what is asked for next lies in the segment from its beginning on. */
static void make_segment(maker *m)
{
    script_start *out = &m->script->start;
    const range *s = m->segment;
    const uint64_t stream = m->script->streams[s->number].number;
    out->segments = grow_array(out->segments, out->count + 1, &out->capacity, sizeof *out->segments);
    out->segments[out->count++] = (script_segment){ s->address, s->bytes, stream, WEIR_EVENT_SEGMENT_ALLOC, s->device };
    add(m, SCRIPT_ALLOC, out->slots, request_for(m, s->bytes));
    add(m, SCRIPT_FREE, out->slots, 0);
    m->at = 0;
}

/* The first of the blocks that fill a hole. What it leaves must be too much for a large block to keep. */
static uint64_t part_of(const maker *m, uint64_t hole)
{
    if (is_small(m)) return unrounded(m, hole < NATIVE_SMALL_MOST ? hole : NATIVE_SMALL_MOST);
    const uint64_t part = unrounded(m, hole);
    const bool leaves_too_little =
        part < hole && hole - part <= NATIVE_SMALL_MOST && hole > NATIVE_SMALL_MOST + NATIVE_UNIT;
    return leaves_too_little ? unrounded(m, hole - NATIVE_SMALL_MOST - NATIVE_UNIT) : part;
}

/* Holes are filled until all segments are laid out. */
static bool fill(maker *m, uint64_t to)
{
    while (m->at < to) {
        const uint64_t hole = to - m->at, bytes = part_of(m, hole);
        if (!is_small(m) && hole <= NATIVE_SMALL_MOST)
            return fail(m, "its segments have holes that PyTorch's rules do not leave");
        if (bytes > hole || is_small(m) != (bytes <= NATIVE_SMALL_MOST))
            return fail(m, "no requests fill its holes (roundup_power2_divisions)");
        add(m, SCRIPT_ALLOC, m->script->start.slots++, bytes);
        m->at += bytes;
    }
    return true;
}

static bool fill_block(maker *m, const start_block *b, uint64_t to)
{
    const size_t first = m->script->start.slots;
    if (!fill(m, to)) return false;
    m->filled = grow_array(m->filled, m->filled_count + 1, &m->filled_capacity, sizeof *m->filled);
    m->filled[m->filled_count++] = (filled){ b, first, m->script->start.slots - first, m->segment->number };
    return true;
}

static const start_block *block_in(const maker *m)
{
    const start_block *b = m->next < m->script->residents ? &m->blocks[m->next] : NULL;
    return b && b->device == m->segment->device && b->address < m->segment->address + m->segment->bytes ? b : NULL;
}

/* How much the block has, if so much is left up to the next one. A large one keeps what is too little for another. */
static uint64_t held(maker *m, const start_block *b, uint64_t asked, uint64_t left)
{
    if (is_small(m)) return asked;
    if (asked >= m->max_split || left - asked <= NATIVE_SMALL_MOST) return left;
    m->script->start.guesses += b->held == 0;
    return b->held > asked && b->held <= left ? b->held : asked;
}

static bool place(maker *m, const start_block *b)
{
    const uint64_t base = m->segment->address, asked = rounded(m, b->bytes);
    if (b->address < base + m->at || b->bytes > m->segment->bytes) return fail(m, ASTRAY);
    if (!fill(m, b->address - base)) return false;
    m->next++;
    const start_block *behind = block_in(m);
    const uint64_t next = behind ? behind->address - base : m->segment->bytes;
    if (next < m->at || next - m->at < asked) return fail(m, ASTRAY);
    const uint64_t bytes = held(m, b, asked, next - m->at);
    if (is_small(m) != (bytes <= NATIVE_SMALL_MOST))
        return fail(m, "its segments have blocks that PyTorch puts elsewhere");
    if (rounded(m, bytes) != bytes) return fill_block(m, b, m->at + bytes);
    add(m, SCRIPT_ALLOC, b->slot, bytes);
    m->at += bytes;
    return true;
}

static bool lay_out(maker *m)
{
    const start_block *b;
    if (m->segment->bytes > SEGMENT_MOST) return fail(m, "one of its segments is larger than any device");
    make_segment(m);
    while ((b = block_in(m)) != NULL)
        if (!place(m, b)) return false;
    return fill(m, m->segment->bytes);
}

static void free_slots(script *s, size_t from, size_t to)
{
    for (size_t slot = from; slot < to; slot++)
        script_ops_add(&s->start.ops, (script_op){ .slot = (uint32_t)slot, .kind = SCRIPT_FREE });
}

/* Of what is filled, blocks take the place of what fills theirs, one after the other. Then all the rest is freed. */
static void free_fills(const maker *m)
{
    script *s = m->script;
    size_t rest = s->slots;
    for (size_t i = 0; i < m->filled_count; i++) {
        const filled *f = &m->filled[i];
        free_slots(s, f->first, f->first + f->count);
        script_ops_add(
            &s->start.ops,
            (script_op){ .bytes = f->block->bytes, .slot = f->block->slot, .kind = SCRIPT_ALLOC, .where = f->stream });
    }
    for (size_t i = 0; i < m->filled_count; i++) {
        free_slots(s, rest, m->filled[i].first);
        rest = m->filled[i].first + m->filled[i].count;
    }
    free_slots(s, rest, s->start.slots);
}

/* The last block up to an address. */
static start_block *block_up_to(start_block *blocks, size_t count, int16_t device, uint64_t address)
{
    size_t from = 0, to = count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const start_block *b = &blocks[middle];
        if (b->device < device || (b->device == device && b->address <= address))
            from = middle + 1;
        else
            to = middle;
    }
    return from > 0 && blocks[from - 1].device == device ? &blocks[from - 1] : NULL;
}

/* What is allocated right behind a block that is still there begins where the block ends. Anything else is further away
 * than the most that a block keeps. */
static void learn_held(const trace *t, start_block *blocks, size_t count)
{
    for (size_t i = 0; i < t->count && count > 0; i++) {
        const weir_event *e = &t->events[i];
        const bool frees = e->kind == WEIR_EVENT_FREE_REQUESTED || e->kind == WEIR_EVENT_FREE_COMPLETED;
        start_block *b =
            frees || e->kind == WEIR_EVENT_ALLOC ? block_up_to(blocks, count, e->device, e->address) : NULL;
        if (!b) continue;
        if (frees && b->address == e->address) b->gone = true;
        if (frees || b->gone || b->held) continue;
        const uint64_t held = e->address - b->address;
        if (held >= b->bytes && held - b->bytes <= NATIVE_SMALL_MOST) b->held = held;
    }
}

/* Those behind one that cannot be made count as held all the same. */
static void lay_out_all(maker *m, const ranges *first)
{
    bool good = true;
    for (range *r = ranges_first(first); r; r = ranges_next(r)) {
        if (r->device < 0 || r->device >= m->script->devices) continue;
        m->script->held[r->device] += (double)r->bytes;
        m->segment = r;
        good = good && lay_out(m);
    }
    if (good && m->next < m->script->residents) (void)fail(m, ASTRAY);
}

/* weir's own files list no segments: of those from before the first event they name what was given back since. */
static bool names_all(const script *s, const trace *t, const ranges *first)
{
    const bool lists = t->segment_count || !t->format || strcmp(t->format, "weir") != 0;
    return lists || (!t->dropped && !s->residents && !ranges_first(first));
}

static bool grows(const trace *t)
{
    bool grows = false;
    for (size_t i = 0; i < t->segment_count && !grows; i++) grows = t->segments[i].mapped;
    for (size_t i = 0; i < t->count && !grows; i++) grows = t->events[i].kind == WEIR_EVENT_SEGMENT_UNMAP;
    return grows;
}

void start_make(script *s, const trace *t, start_block *blocks, segments_number number, void *user)
{
    ranges first = segments_first(t, number, user);
    maker m = { .script = s,
                .blocks = blocks,
                .max_split = t->settings.max_split_size ? t->settings.max_split_size : UINT64_MAX };
    s->start = (script_start){ .slots = s->slots };
    config_read(&t->settings, &m.config);
    if (names_all(s, t, &first)) {
        learn_held(t, blocks, s->residents);
        lay_out_all(&m, &first);
    } else {
        (void)fail(&m, "it does not say what segments there were");
    }
    free_fills(&m);
    free(m.filled);
    s->start.slots++; /* with which segments are made */
    /* What was freed before the first event, but was still in use, is so then. */
    for (size_t i = s->residents; i < s->before.count; i++) script_ops_add(&s->start.ops, s->before.at[i]);
    if (grows(t)) (void)fail(&m, "its segments grow by mapping (expandable_segments)");
    ranges_release(&first);
}

void start_release(script_start *start)
{
    free(start->ops.at);
    free(start->segments);
}
