#include "misuse.h"

#include "output/stack.h"
#include "output/text.h"

#include <inttypes.h>

typedef struct explanation {
    const char *kind, *what, *remedy; /* the stream is named between `what` and `remedy` */
    const char *call;                 /* which call the event's stack belongs to */
} explanation;

static const explanation *explain(const weir_event *e)
{
    static const explanation all[] = {
        { "unrecorded_use", "was used on stream ",
          ", which was not recorded: call weir_record_stream() before weir_free(), or allocate it on that stream",
          "used" },
        { "unordered_use", "was used on stream ",
          " while another stream may still have been using it: call weir_stream_wait() in between", "used" },
        { "late_write", "was written to after it was freed, when it was memory of stream ",
          ": if another stream still used it, call weir_record_stream() before weir_free()", "freed" },
        { "suspect_free", "was freed while stream ",
          " was current: if that stream uses it, call weir_record_stream() before weir_free(), or allocate it on that "
          "stream",
          "freed" },
    };
    _Static_assert(sizeof all / sizeof *all == WEIR_EVENT_SUSPECT_FREE - WEIR_EVENT_UNRECORDED_USE + 1,
                   "every kind is explained");
    return &all[e->kind - WEIR_EVENT_UNRECORDED_USE];
}

bool misuse_is(const weir_event *e)
{
    return e->kind >= WEIR_EVENT_UNRECORDED_USE && e->kind <= WEIR_EVENT_SUSPECT_FREE;
}

/* When a late write is found, the address already belongs to another block. */
static const weir_event *allocation_of(const trace *t, size_t index, size_t made)
{
    return made == MISUSE_UNKNOWN || t->events[index].kind == WEIR_EVENT_LATE_WRITE ? NULL : &t->events[made];
}

static uint32_t stack_of(const trace *t, const weir_event *e)
{
    return e ? trace_stack(t, (size_t)(e - t->events)) : 0;
}

static void print_call(FILE *out, const char *name, const char *call, const trace *t, const weir_event *e)
{
    const uint32_t stack = stack_of(t, e);
    if (stack == 0) return;
    text_printf(out, "%s: %s: ", name, call);
    if (!stack_print(out, &t->stacks, stack)) putc('?', out);
    putc('\n', out);
}

void misuse_print(FILE *out, const char *name, const trace *t, size_t index, size_t made)
{
    const weir_event *e = &t->events[index], *allocation = allocation_of(t, index, made);
    const explanation *x = explain(e);
    text_printf(out, "%s: event %zu: the block at %#" PRIx64 " (%" PRIu64 " bytes, device %d", name, index, e->address,
                e->size, e->device);
    if (allocation) fprintf(out, ", stream %#" PRIx64, allocation->stream);
    fprintf(out, ") %s%#" PRIx64 "%s\n", x->what, e->stream, x->remedy);
    print_call(out, name, "allocated", t, allocation);
    print_call(out, name, x->call, t, e);
}

json_t *misuse_json(const trace *t, size_t index, size_t made)
{
    const weir_event *e = &t->events[index], *allocation = allocation_of(t, index, made);
    json_t *object = json_object();
    json_add(object, "event", json_count(index));
    json_add(object, "kind", json_string(explain(e)->kind));
    json_add(object, "address", json_name(e->address));
    json_add(object, "bytes", json_count(e->size));
    json_add(object, "device", json_integer(e->device));
    json_add(object, "stream", json_name(e->stream));
    json_add(object, "own_stream", allocation ? json_name(allocation->stream) : json_null());
    json_add(object, "frames", stack_json(&t->stacks, stack_of(t, e)));
    json_add(object, "allocated", stack_json(&t->stacks, stack_of(t, allocation)));
    return object;
}
