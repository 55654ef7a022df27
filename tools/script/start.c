#include "script/start.h"

#include "grow.h"
#include "script/ops.h"

#include <stdlib.h>
#include <string.h>

/* PyTorch's native rules: segments of this size are for small blocks, of at most half of it; a large block keeps what
 * would be left of it if that is no more than a small block. */
static const uint64_t SMALL_SEGMENT = UINT64_C(2) << 20, SMALL_MOST = UINT64_C(1) << 20, UNIT = 512;

static const char ASTRAY[] = "blocks from before it overlap, or lie in no segment that it names";

typedef struct maker {
    script *script;
    const start_block *blocks;
    size_t next;        /* of the blocks */
    uint64_t max_split; /* what is asked for from here on gets a block whole */
    const range *segment;
    uint64_t at; /* where the next block begins in the segment */
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
    return m->segment->bytes == SMALL_SEGMENT;
}

static uint64_t round_up(uint64_t bytes)
{
    return bytes ? (bytes + UNIT - 1) / UNIT * UNIT : UNIT;
}

/* The segment is made by a request that takes the whole of it, or of a small one the half. It is free then, and
 * nothing else is, so what is asked for next lies in it from its beginning on. */
static void make_segment(maker *m)
{
    script_start *out = &m->script->start;
    const range *s = m->segment;
    const uint64_t stream = m->script->streams[s->number].number;
    out->segments = grow_array(out->segments, out->count + 1, &out->capacity, sizeof *out->segments);
    out->segments[out->count++] = (script_segment){ s->address, s->bytes, stream, WEIR_EVENT_SEGMENT_ALLOC, s->device };
    add(m, SCRIPT_ALLOC, out->slots, is_small(m) ? SMALL_MOST : s->bytes);
    add(m, SCRIPT_FREE, out->slots, 0);
    m->at = 0;
}

/* Holes are filled until all segments are laid out. */
static bool fill(maker *m, uint64_t to)
{
    while (m->at < to) {
        const uint64_t hole = to - m->at, bytes = is_small(m) && hole > SMALL_MOST ? SMALL_MOST : hole;
        if (!is_small(m) && bytes <= SMALL_MOST)
            return fail(m, "its segments have holes that PyTorch's rules do not leave");
        add(m, SCRIPT_ALLOC, m->script->start.slots++, bytes);
        m->at += bytes;
    }
    return true;
}

static const start_block *block_in(const maker *m)
{
    const start_block *b = m->next < m->script->residents ? &m->blocks[m->next] : NULL;
    return b && b->device == m->segment->device && b->address < m->segment->address + m->segment->bytes ? b : NULL;
}

/* How much the block has, if so much is left up to the next one. */
static uint64_t held(maker *m, const start_block *b, uint64_t asked, uint64_t left)
{
    if (is_small(m)) return asked;
    if (asked >= m->max_split || left - asked <= SMALL_MOST) return left;
    m->script->start.guesses += b->held == 0;
    return b->held > asked && b->held <= left ? b->held : asked;
}

static bool place(maker *m, const start_block *b)
{
    const uint64_t base = m->segment->address, asked = round_up(b->bytes);
    if (b->address < base + m->at || b->bytes > m->segment->bytes) return fail(m, ASTRAY);
    if (!fill(m, b->address - base)) return false;
    m->next++;
    const start_block *behind = block_in(m);
    const uint64_t next = behind ? behind->address - base : m->segment->bytes;
    if (next < m->at || next - m->at < asked) return fail(m, ASTRAY);
    const uint64_t bytes = held(m, b, asked, next - m->at);
    if (is_small(m) != (bytes <= SMALL_MOST)) return fail(m, "its segments have blocks that PyTorch puts elsewhere");
    add(m, SCRIPT_ALLOC, b->slot, bytes);
    m->at += bytes;
    return true;
}

static bool lay_out(maker *m)
{
    const start_block *b;
    make_segment(m);
    while ((b = block_in(m)) != NULL)
        if (!place(m, b)) return false;
    return fill(m, m->segment->bytes);
}

static void free_fills(script *s)
{
    for (size_t slot = s->slots; slot < s->start.slots; slot++)
        script_ops_add(&s->start.ops, (script_op){ .slot = (uint32_t)slot, .kind = SCRIPT_FREE });
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
        if (held >= b->bytes && held - b->bytes <= SMALL_MOST) b->held = held;
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

void start_make(script *s, const trace *t, start_block *blocks, segments_number number, void *user)
{
    ranges first = segments_first(t, number, user);
    maker m = { .script = s,
                .blocks = blocks,
                .max_split = t->settings.max_split_size ? t->settings.max_split_size : UINT64_MAX };
    s->start = (script_start){ .slots = s->slots };
    if (names_all(s, t, &first)) {
        learn_held(t, blocks, s->residents);
        lay_out_all(&m, &first);
    } else {
        (void)fail(&m, "it does not say what segments there were");
    }
    free_fills(s);
    s->start.slots++; /* with which segments are made */
    /* What was freed before the first event, but was still in use, is so then. */
    for (size_t i = s->residents; i < s->before.count; i++) script_ops_add(&s->start.ops, s->before.at[i]);
    ranges_release(&first);
}

void start_release(script_start *start)
{
    free(start->ops.at);
    free(start->segments);
}
