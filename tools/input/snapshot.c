#include "snapshot.h"

#include "grow.h"
#include "merge.h"
#include "sections.h"
#include "snapshot_dict.h"
#include "stacks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HEIGHT_MAX 3  /* real snapshots nest 2 deep */
#define DEEPEST 65536 /* frames of a stack */

typedef struct block {
    uint64_t address, size, requested;
    uint32_t stack;
    word state;
    bool placed; /* the address is known */
} block;

/* A list has the kind of its items. One that mixes kinds, or holds items of none, is stray. Whether that is an error
 * shows only when the list's own key is known. */
typedef enum list_kind {
    LIST_EMPTY,
    LIST_EVENTS,   /* weir_event */
    LIST_BLOCKS,   /* block */
    LIST_SEGMENTS, /* trace_live, of all blocks of all segments */
    LIST_HISTORY,  /* uint64_t: the real sizes of blocks, in old snapshots */
    LIST_LISTS,    /* list * of events; NULL: empty */
    LIST_FRAMES,   /* uint32_t: the frames' numbers; one stack */
    LIST_STRAY
} list_kind;

static const size_t item_bytes[] = {
    0, sizeof(weir_event), sizeof(block), sizeof(trace_live), sizeof(uint64_t), sizeof(void *), sizeof(uint32_t), 0
};

typedef struct list {
    list_kind kind;
    size_t count, capacity;
    void *items;
    trace_error stray; /* why it is stray */
} list;

static list plain_stray = { .kind = LIST_STRAY }; /* shared by stray lists without a reason; never changed */

typedef struct snapshot {
    source *s;
    const trace_limits *limits;
    uint64_t events, live;
    size_t segment_capacity;
    stack_table stacks;
    trace *out;
} snapshot;

/* ---- letting go -------------------------------------------------------------------------------------------------- */

static void free_list(list *l);

static void clear_list(list *l)
{
    if (l->kind == LIST_LISTS) {
        list **inner = l->items;
        for (size_t i = 0; i < l->count; i++) free_list(inner[i]); /* these hold events, so the recursion ends here */
    }
    free(l->items);
    *l = (list){ 0 };
}

static void free_list(list *l)
{
    if (!l || l == &plain_stray) return;
    clear_list(l);
    free(l);
}

static void drop_value(void *user, pickle_value value)
{
    if (value.type == PICKLE_LIST) free_list(value.node);
    if (value.type != PICKLE_DICT || !value.node) return;
    dict *d = value.node;
    for (int i = 0; i < d->count; i++) drop_value(user, d->items[i]);
    free(d);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* Tokens carry the number of a frame or stack, so that the memo can refer to it again. */
enum { TOKEN_FRAME, TOKEN_STACK };

static pickle_value make_token(int kind, uint32_t number)
{
    return (pickle_value){ .type = PICKLE_TOKEN, .big = (uint64_t)number << 1 | (unsigned)kind };
}

static bool is_token(const pickle_value *value, int kind)
{
    return value->type == PICKLE_TOKEN && (value->big & 1) == (unsigned)kind;
}

static bool is_frame(const dict *d)
{
    return dict_has(d, WORD_FILENAME) && dict_has(d, WORD_LINE) && dict_has(d, WORD_NAME);
}

static const pickle_string *frame_word(const dict *d, word key)
{
    const pickle_value *value = dict_get(d, key);
    return value && value->type == PICKLE_STRING ? value->string : NULL;
}

static bool frame_number(snapshot *s, const dict *d, uint32_t *number)
{
    stack_frame frame = { .file = frame_word(d, WORD_FILENAME), .function = frame_word(d, WORD_NAME) };
    if (!dict_number(d, WORD_LINE, &frame.line)) frame.line = 0;
    return stacks_frame(&s->stacks, frame, number);
}

/* Of a deeper stack than weir's own format has room for, the innermost frames. */
static bool stack_number(snapshot *s, const list *l, uint32_t *number)
{
    return stacks_stack(&s->stacks, l->items, l->count < DEEPEST ? l->count : DEEPEST, number);
}

static bool take_token(void *user, pickle_value container, pickle_value *token)
{
    snapshot *s = user;
    uint32_t number;
    if (container.type == PICKLE_LIST) {
        const list *l = container.node;
        if (l->kind != LIST_FRAMES) return true;
        if (!stack_number(s, l, &number)) return false;
        *token = make_token(TOKEN_STACK, number);
        return true;
    }
    if (!is_frame(container.node)) return true;
    if (!frame_number(s, container.node, &number)) return false;
    *token = make_token(TOKEN_FRAME, number);
    return true;
}

/* Replaces the value of "frames" by the number of the stack. */
static bool reduce_stack(snapshot *s, pickle_value *value)
{
    uint32_t number = 0;
    const list *l = value->type == PICKLE_LIST ? value->node : NULL;
    bool good = !l || l->kind != LIST_FRAMES || stack_number(s, l, &number);
    if (is_token(value, TOKEN_STACK)) number = (uint32_t)(value->big >> 1);
    drop_value(s, *value);
    *value = (pickle_value){ .type = PICKLE_INT, .number = number };
    return good;
}

/* ---- dictionaries ------------------------------------------------------------------------------------------------ */

static bool set_item(void *user, void **slot, pickle_value key, pickle_value value)
{
    snapshot *s = user;
    word name = key.type == PICKLE_STRING && key.string->id <= LAST_KEY ? (word)key.string->id : WORD_NONE;
    int height = value.type == PICKLE_DICT && value.node ? ((dict *)value.node)->height + 1 : 0;
    drop_value(user, key);
    if (name == WORD_NONE || height > HEIGHT_MAX) {
        drop_value(user, value);
        return true;
    }
    if (name == WORD_FRAMES && !reduce_stack(s, &value)) return false;
    dict *d = *slot;
    pickle_value *item = dict_slot(&d, name);
    if (!item) {
        drop_value(user, value);
        return source_fail_memory(s->s);
    }
    *slot = d;
    drop_value(user, *item);
    *item = value;
    item->tag = name;
    if (height > d->height) d->height = (uint8_t)height;
    return true;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Always true: that is no error yet. */
static bool stray(snapshot *s, list *l, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool stray(snapshot *s, list *l, const char *format, ...)
{
    clear_list(l);
    l->kind = LIST_STRAY;
    l->stray.offset = source_offset(s->s);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(l->stray.text, sizeof l->stray.text, format, arguments);
    va_end(arguments);
    return true;
}

/* The dict of an item or a field; NULL: not a dict, or one without known keys. */
static const dict *as_dict(const pickle_value *value)
{
    return value && value->type == PICKLE_DICT ? value->node : NULL;
}

/* The kind of list that the item may belong to. */
static list_kind kind_of(const pickle_value *item)
{
    if (item->type == PICKLE_LIST) {
        const list *l = item->node;
        return !l || l->kind == LIST_EVENTS ? LIST_LISTS : LIST_STRAY;
    }
    const dict *d = as_dict(item);
    if (dict_has(d, WORD_ACTION)) return LIST_EVENTS;
    if (dict_has(d, WORD_BLOCKS)) return LIST_SEGMENTS;
    if (dict_has(d, WORD_STATE) && dict_has(d, WORD_SIZE)) return LIST_BLOCKS;
    if (dict_has(d, WORD_REAL_SIZE)) return LIST_HISTORY;
    return is_frame(d) || is_token(item, TOKEN_FRAME) ? LIST_FRAMES : LIST_STRAY;
}

/* Room for one more item at the end of the list; NULL: the error is set. */
static void *extend(snapshot *s, list *l)
{
    if (!grow_try(&l->items, &l->capacity, l->count + 1, item_bytes[l->kind])) {
        (void)source_fail_memory(s->s);
        return NULL;
    }
    return (char *)l->items + l->count++ * item_bytes[l->kind];
}

/* Returns the name of the first field that is not as it should be; NULL: there is none. */
static const char *read_fields(const dict *d, word address, weir_event *e)
{
    const bool placed = e->kind != WEIR_EVENT_OOM && e->kind != WEIR_EVENT_SNAPSHOT;
    if (!dict_gives(d, WORD_SIZE) || !dict_number(d, WORD_SIZE, &e->size)) return word_text(WORD_SIZE);
    if ((placed && !dict_gives(d, address)) || !dict_address(d, address, &e->address)) return word_text(address);
    if (!dict_address(d, WORD_STREAM, &e->stream)) return word_text(WORD_STREAM);
    if (!dict_time_ns(d, &e->time_ns)) return word_text(WORD_TIME_US);
    return dict_pool(d, WORD_POOL_ID, e->pool) ? NULL : word_text(WORD_POOL_ID);
}

static bool add_event(snapshot *s, list *l, const dict *d)
{
    word action = dict_word(d, WORD_ACTION);
    if (action == WORD_USER_DEFINED) return true;
    if (action < WORD_ALLOC || action > WORD_SNAPSHOT)
        return stray(s, l, "the event action \"%.64s\" is unknown; remove such events, or use a newer weir",
                     dict_text(d, WORD_ACTION));
    weir_event e = { .kind = (uint16_t)(action - WORD_ALLOC + WEIR_EVENT_ALLOC) };
    word address = action == WORD_OOM && dict_has(d, WORD_DEVICE_FREE) ? WORD_DEVICE_FREE : WORD_ADDR;
    const char *missing = read_fields(d, address, &e);
    if (missing) return stray(s, l, "the %s event has no usable %s", word_text(action), missing);
    if (++s->events > s->limits->events)
        return source_fail(s->s, source_offset(s->s), "more than %" PRIu64 " events, the limit", s->limits->events);
    e.thread = dict_stack(d); /* until part_stacks */
    weir_event *at = extend(s, l);
    if (!at) return false;
    *at = e;
    return true;
}

static bool add_frame(snapshot *s, list *l, const pickle_value *item)
{
    uint32_t number = (uint32_t)(item->big >> 1);
    if (!is_token(item, TOKEN_FRAME) && !frame_number(s, as_dict(item), &number)) return false;
    uint32_t *at = extend(s, l);
    if (at) *at = number;
    return at != NULL;
}

static bool add_block(snapshot *s, list *l, const dict *d)
{
    block b = { .stack = dict_stack(d), .state = dict_word(d, WORD_STATE), .placed = dict_has(d, WORD_ADDRESS) };
    if (b.state < WORD_INACTIVE || b.state > WORD_ACTIVE_AWAITING_FREE)
        return stray(s, l, "the block state \"%.64s\" is unknown", dict_text(d, WORD_STATE));
    const pickle_value *past = dict_get(d, WORD_HISTORY);
    const list *history = past && past->type == PICKLE_LIST ? past->node : NULL;
    if (!dict_number(d, WORD_SIZE, &b.size) || !dict_address(d, WORD_ADDRESS, &b.address) ||
        !dict_number(d, WORD_REQUESTED_SIZE, &b.requested))
        return stray(s, l, "a block has no usable size, address or requested_size");
    if (!dict_has(d, WORD_REQUESTED_SIZE))
        b.requested = history && history->kind == LIST_HISTORY ? *(uint64_t *)history->items : b.size;
    block *at = extend(s, l);
    if (!at) return false;
    *at = b;
    return true;
}

/* The list of that kind in a field; NULL when empty. False: it is not such a list, and *why says so. */
static bool need_list(snapshot *s, const pickle_value *value, list_kind kind, const char *name, list **out,
                      trace_error *why)
{
    list *l = value->type == PICKLE_LIST ? value->node : NULL;
    *out = l;
    if (value->type == PICKLE_LIST && (!l || l->kind == kind)) return true;
    if (l && l->stray.text[0]) {
        *why = l->stray;
        return false;
    }
    why->offset = source_offset(s->s);
    if (value->type == PICKLE_SHARED)
        snprintf(why->text, sizeof why->text,
                 "\"%s\" is shared with another place in the file, where its content was already used", name);
    else
        snprintf(why->text, sizeof why->text, "\"%s\" is not the list that a PyTorch memory snapshot has there", name);
    return false;
}

/* Adds the segment itself. A segment without a size is ignored. */
static bool add_range(snapshot *s, const dict *d, uint64_t address, const trace_live *common)
{
    uint64_t bytes;
    trace *t = s->out;
    if (!dict_number(d, WORD_TOTAL_SIZE, &bytes) || bytes == 0) return true;
    if (!grow_try((void **)&t->segments, &s->segment_capacity, t->segment_count + 1, sizeof *t->segments))
        return source_fail_memory(s->s);
    const bool mapped = dict_true(d, WORD_IS_EXPANDABLE);
    t->segments[t->segment_count++] =
        (trace_segment){ address, bytes, common->stream, { common->pool[0], common->pool[1] }, common->device, mapped };
    return true;
}

static bool add_segment(snapshot *s, list *l, const dict *d)
{
    trace_live common = { 0 };
    uint64_t address, device;
    if (!dict_address(d, WORD_ADDRESS, &address) || !dict_number(d, WORD_DEVICE, &device) || device > INT16_MAX ||
        !dict_address(d, WORD_STREAM, &common.stream) || !dict_pool(d, WORD_SEGMENT_POOL_ID, common.pool))
        return stray(s, l, "a segment has no usable address, device, stream or segment_pool_id");
    common.device = (int16_t)device;

    if (!add_range(s, d, address, &common)) return false;
    list *blocks;
    trace_error why;
    if (!need_list(s, dict_get(d, WORD_BLOCKS), LIST_BLOCKS, "blocks", &blocks, &why)) {
        stray(s, l, "%s", why.text);
        l->stray.offset = why.offset;
        return true;
    }
    for (size_t i = 0; blocks && i < blocks->count; i++) {
        const block *b = (block *)blocks->items + i;
        if (b->placed) address = b->address;
        if (b->state != WORD_INACTIVE) {
            if (++s->live > s->limits->events)
                return source_fail(s->s, source_offset(s->s), "more than %" PRIu64 " live blocks, the limit",
                                   s->limits->events);
            trace_live *at = extend(s, l);
            if (!at) return false;
            *at = common;
            at->address = address;
            at->bytes = b->size;
            at->requested = b->requested;
            at->stack = b->stack;
            at->pending = b->state != WORD_ACTIVE_ALLOCATED;
        }
        address += b->size;
    }
    return true;
}

static bool add_real_size(snapshot *s, list *l, const dict *d)
{
    uint64_t bytes;
    if (!dict_number(d, WORD_REAL_SIZE, &bytes)) return stray(s, l, "a block's history has no usable real_size");
    uint64_t *at = extend(s, l);
    if (at) *at = bytes;
    return at != NULL;
}

/* Appends an item that makes the list in *slot stray. */
static void append_stray(snapshot *s, void **slot, pickle_value item)
{
    list *l = *slot, *inner = item.type == PICKLE_LIST ? item.node : NULL;
    bool told = inner && inner->kind == LIST_STRAY && inner->stray.text[0];
    if (told && (!l || l->kind != LIST_STRAY)) { /* the reason inside is the better one */
        free_list(l);
        *slot = inner;
        return;
    }
    if (!l)
        *slot = &plain_stray;
    else if (l->kind != LIST_STRAY)
        stray(s, l,
              item.type == PICKLE_SHARED
                  ? "an item of a list is shared with another place in the file, where its content was already used"
                  : "a list has items of different kinds");
    drop_value(s, item);
}

static bool append_item(void *user, void **slot, pickle_value item)
{
    snapshot *s = user;
    list *l = *slot;
    list_kind kind = kind_of(&item);
    if (kind == LIST_STRAY || (l && l->kind != kind)) {
        append_stray(s, slot, item);
        return true;
    }
    if (!l) {
        *slot = l = calloc(1, sizeof *l);
        if (!l) {
            drop_value(s, item);
            return source_fail_memory(s->s);
        }
        l->kind = kind;
    }
    bool good = false;
    const dict *d = as_dict(&item);
    switch (kind) {
    case LIST_EVENTS: good = add_event(s, l, d); break;
    case LIST_BLOCKS: good = add_block(s, l, d); break;
    case LIST_SEGMENTS: good = add_segment(s, l, d); break;
    case LIST_HISTORY: good = add_real_size(s, l, d); break;
    case LIST_FRAMES: good = add_frame(s, l, &item); break;
    default: {
        list **at = extend(s, l);
        if (!at) break;
        *at = item.node; /* kept */
        return true;
    }
    }
    drop_value(s, item);
    return good;
}

/* ---- what it all is ---------------------------------------------------------------------------------------------- */

static bool fail_at(snapshot *s, const trace_error *why)
{
    return source_fail(s->s, why->offset, "%s", why->text);
}

static bool collect_events(snapshot *s, const pickle_value *traces)
{
    trace_error why;
    list *outer;
    if (!need_list(s, traces, LIST_LISTS, "device_traces", &outer, &why)) return fail_at(s, &why);
    size_t devices = outer ? outer->count : 0;
    if (devices > (size_t)INT16_MAX + 1)
        return source_fail(s->s, source_offset(s->s), "traces of %zu devices, more than %d", devices, INT16_MAX + 1);

    size_t *bounds = malloc((devices + 1) * sizeof *bounds);
    weir_event *events = NULL;
    size_t count = 0, capacity = 0, runs = 0;
    bool good = bounds != NULL;
    for (size_t i = 0; i < devices && good; i++) {
        list *l = ((list **)outer->items)[i];
        if (!l || !l->items) continue;
        weir_event *own = l->items;
        for (size_t k = 0; k < l->count; k++) own[k].device = (int16_t)i;
        bounds[runs++] = count;
        if (count == 0) {
            events = own;
            capacity = l->capacity;
        } else {
            good = grow_try((void **)&events, &capacity, count + l->count, sizeof *events);
            if (good) memcpy(events + count, own, l->count * sizeof *events);
            free(own);
        }
        count += l->count;
        l->items = NULL;
    }
    if (good) {
        bounds[runs] = count;
        good = merge_by_time(&events, bounds, runs);
    }
    free(bounds);
    s->out->events = events;
    s->out->count = good ? count : 0;
    return good || source_fail_memory(s->s);
}

/* Until here an event's stack is kept in its `thread`, which snapshots lack, so that sorting moves both together. */
static bool part_stacks(snapshot *s)
{
    trace *t = s->out;
    if (!stacks_finish(&s->stacks, &t->stacks)) return false;
    if (t->stacks.count) {
        t->stacks.of = malloc((t->count + 1) * sizeof *t->stacks.of);
        if (!t->stacks.of) return source_fail_memory(s->s);
    }
    for (size_t i = 0; i < t->count; i++) {
        if (t->stacks.count) t->stacks.of[i] = t->events[i].thread;
        t->events[i].thread = 0;
    }
    return true;
}

static bool collect_live(snapshot *s, const pickle_value *segments)
{
    trace_error why;
    list *l;
    if (!need_list(s, segments, LIST_SEGMENTS, "segments", &l, &why)) return fail_at(s, &why);
    trace *t = s->out;
    if (l && l->count) {
        t->live = l->items;
        t->live_count = l->count;
        l->items = NULL;
    }
    sections_sort(t);
    return true;
}

/* Writes out every size class, so that nothing depends on how PyTorch's grammar fills gaps. */
static bool collect_roundup(snapshot *s, const dict *d, char *text, size_t capacity)
{
    uint64_t divisions[WORD_MIB_32768 - WORD_MIB_1 + 1];
    bool off = true;
    for (word key = WORD_MIB_1; key <= WORD_MIB_32768; key++) {
        uint64_t value;
        if (!dict_number(d, key, &value) || value > 32768 || (value & (value - 1)) != 0)
            return source_fail(s->s, source_offset(s->s), "roundup_power2_divisions has no power of two at \"%s\"",
                               word_text(key));
        divisions[key - WORD_MIB_1] = value;
        off &= value == 0;
    }
    text[0] = '\0';
    size_t at = 0;
    for (word key = WORD_MIB_1; key <= WORD_MIB_32768 && !off; key++) {
        bool last = key == WORD_MIB_32768;
        at += (size_t)snprintf(text + at, capacity - at, "%s%s:%u%s", at ? "," : "[", word_text(key),
                               (unsigned)divisions[key - WORD_MIB_1], last ? "]" : "");
    }
    return true;
}

static bool collect_settings(snapshot *s, const dict *d)
{
    trace_settings *to = &s->out->settings;
    const pickle_value *value;
    to->known = true;
    to->expandable_segments = dict_true(d, WORD_EXPANDABLE_SEGMENTS);
    if ((value = dict_get(d, WORD_MAX_SPLIT_SIZE)) && value->type == PICKLE_INT && value->number > 0)
        to->max_split_size = (uint64_t)value->number; /* -1 and 2^64-1: unlimited */
    if ((value = dict_get(d, WORD_GC_THRESHOLD)) && value->type == PICKLE_FLOAT) to->gc_threshold = value->real;
    word conf = dict_has(d, WORD_ALLOC_CONF) ? WORD_ALLOC_CONF : WORD_CUDA_ALLOC_CONF;
    if ((value = dict_get(d, conf)) && value->type == PICKLE_STRING)
        snprintf(to->config, sizeof to->config, "%s", value->string->text);
    return collect_roundup(s, as_dict(dict_get(d, WORD_ROUNDUP)), to->roundup_power2_divisions,
                           sizeof to->roundup_power2_divisions);
}

static bool take_result(void *user, pickle_value value)
{
    snapshot *s = user;
    if (value.type == PICKLE_LIST) return collect_live(s, &value) && part_stacks(s); /* memory_snapshot() */

    const dict *top = as_dict(&value);
    const pickle_value *traces = dict_get(top, WORD_DEVICE_TRACES), *segments = dict_get(top, WORD_SEGMENTS);
    const dict *settings = as_dict(dict_get(top, WORD_ALLOCATOR_SETTINGS));
    if (!traces && !segments)
        return source_fail(
            s->s, source_offset(s->s),
            "the pickle has neither \"device_traces\" nor \"segments\": it is not a PyTorch memory snapshot");
    if ((traces && !collect_events(s, traces)) || !part_stacks(s)) return false;
    if (segments && !collect_live(s, segments)) return false;
    return !settings || collect_settings(s, settings);
}

bool snapshot_detect(const uint8_t *head, size_t count)
{
    if (count < 2) return false;
    if (head[0] == 0x80) return true;                            /* PROTO: protocols 2 and up */
    if (head[0] == '}' || head[0] == ']') return true;           /* EMPTY_DICT, EMPTY_LIST: protocol 1 */
    return head[0] == '(' && (head[1] == 'd' || head[1] == 'l'); /* MARK DICT, MARK LIST: protocol 0 */
}

bool snapshot_read(source *s, const trace_limits *limits, trace *out)
{
    snapshot state = { .s = s, .limits = limits, .stacks = { .s = s }, .out = out };
    pickle_builder builder = { .words = snapshot_words,
                               .word_count = WORD_COUNT,
                               .user = &state,
                               .set = set_item,
                               .append = append_item,
                               .token = take_token,
                               .result = take_result,
                               .drop = drop_value };
    bool good = pickle_read(s, limits, &builder);
    stacks_release(&state.stacks);
    return good;
}
