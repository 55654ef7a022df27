#include "replay/play.h"

#include "weir/host.h"

#include <stdio.h>

/* Steps of the clock in a pass. */
enum { TICKS = 64 };

/* The back end's clock follows the recorded one, because the library measures its share of the program's time. */
bool play_moves_clock(const session *s)
{
    return s->host && s->script->duration_ns != 0;
}

static weir_status alloc_failed(session *s, const script_op *op, weir_status status, void **out)
{
    *out = NULL;
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    s->oom++;
    if (!s->oom_op) s->oom_op = op;
    if (!s->oom_text[0]) snprintf(s->oom_text, sizeof s->oom_text, "%s", weir_error_text());
    return WEIR_OK;
}

/* Whether the library itself gives back what went then: by age, or because of the limit. */
static bool collected(const session *s, const script_op *op)
{
    return s->collects && op->bytes != 0;
}

static inline weir_status ask(session *s, const script_op *op, void **out)
{
    const weir_mempool pool = s->pools[op->where];
    return pool.user ? weir_alloc_from(pool, op->bytes, s->streams[op->where], out)
                     : weir_alloc_on(op->bytes, s->streams[op->where], out);
}

static inline weir_status allocate(session *s, const script_op *op, void **out)
{
    if (s->until_oom && s->oom) {
        *out = NULL;
        return WEIR_OK;
    }
    const weir_status status = ask(s, op, out);
    return status == WEIR_OK ? WEIR_OK : alloc_failed(s, op, status, out);
}

/* How long the program would have kept the memory is unknown, since it got no further: frees it at once. */
static weir_status ask_again(session *s, const script_op *op)
{
    void *pointer;
    const weir_status status = allocate(s, op, &pointer);
    return status == WEIR_OK ? weir_free(pointer) : status;
}

/* Below a limit that is lower than what the recorded allocator held the library runs short by itself. */
static bool is_limited(const session *s, int device)
{
    uint64_t limit = 0;
    return weir_memory_limit_get(device, &limit) != WEIR_OK || (limit != 0 && (double)limit < s->script->held[device]);
}

/* The allocation that room was made for; NULL also where the driver cannot be made to refuse it. */
static const script_op *refusable(const session *s, const script_op *relief)
{
    return s->host && !is_limited(s, (int)relief->where) ? script_relieved(s->script, relief) : NULL;
}

/* Whether the relief is played at all: policies other than PyTorch's give memory back when they run short
 * themselves. */
static bool relieves(const session *s, const script_op *relief)
{
    return s->torch && !collected(s, relief);
}

const script_op *play_failing(const session *s, const script_op *relief)
{
    const script_op *wanted = relieves(s, relief) ? refusable(s, relief) : NULL;
    return wanted && wanted->kind == SCRIPT_REFUSED ? wanted : NULL;
}

/* Where the recorded allocator gave back enough at first, it asked the driver again before it gave back all. */
static weir_status let_driver_refuse(const script_op *relief, const script_op *wanted)
{
    bool again = false;
    if (wanted->kind == SCRIPT_REFUSED) return weir_memory_limit_set((int)relief->where, 1);
    for (const script_op *op = relief + 1; op < wanted; op++) again |= op->kind == SCRIPT_RELIEVE;
    weir_status status = weir_host_fail(WEIR_BACKEND_segment_alloc, 1, WEIR_ERR_OUT_OF_MEMORY);
    if (status == WEIR_OK && again && relief->bytes >= wanted->bytes)
        status = weir_host_fail(WEIR_BACKEND_segment_alloc, 2, WEIR_ERR_OUT_OF_MEMORY);
    return status;
}

/* A request that was refused when recorded is refused now. */
static weir_status allocate_short(session *s, const script_op *op)
{
    if (op->kind == SCRIPT_ALLOC) return allocate(s, op, &s->slots[op->slot]);
    void *pointer;
    const weir_status status = ask(s, op, &pointer);
    if (status == WEIR_OK) return weir_free(pointer);
    return status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_OK : status;
}

static weir_status begin_uses(session *s, const script_op *relief, const script_op *wanted)
{
    weir_status status = WEIR_OK;
    for (const script_op *op = relief + 1; op < wanted && status == WEIR_OK; op++)
        if (op->kind == SCRIPT_FREE) status = gate_free(&s->gates, op->where, s->slots[op->slot]);
    return status;
}

static weir_status end_uses(session *s, const script_op *relief, const script_op *wanted)
{
    weir_status status = WEIR_OK;
    for (const script_op *op = relief + 1; op < wanted && status == WEIR_OK; op++)
        if (op->kind != SCRIPT_RELIEVE) status = gate_pass(&s->gates, op->where);
    return status;
}

/* Plays a relief's operations and the allocation: refused by the driver, the library waits for uses and gives back what
 * the policy says. If it did not ask the driver, all goes that is idle, as it did when recorded. A limit, which may be
 * another than the recorded one, must not refuse besides. */
static weir_status run_short(session *s, const script_op *relief, const script_op *wanted)
{
    const int device = (int)relief->where;
    uint64_t limit = 0, before = 0, after = 0;
    weir_status status = weir_memory_limit_get(device, &limit);
    if (status == WEIR_OK) status = weir_host_calls(WEIR_BACKEND_segment_alloc, &before);
    if (status == WEIR_OK) status = weir_memory_limit_set(device, 0);
    if (status == WEIR_OK) status = let_driver_refuse(relief, wanted);
    if (status == WEIR_OK) status = begin_uses(s, relief, wanted);
    if (status == WEIR_OK) status = allocate_short(s, wanted);
    if (status == WEIR_OK) status = weir_host_fail_clear();
    if (status == WEIR_OK) status = end_uses(s, relief, wanted);
    if (status == WEIR_OK) status = weir_host_calls(WEIR_BACKEND_segment_alloc, &after);
    if (status == WEIR_OK && after == before) status = weir_empty_cache(device);
    return status == WEIR_OK ? weir_memory_limit_set(device, limit) : status;
}

/* Plays a relief's operations and empties the cache. */
static weir_status run_empty(session *s, const script_op *relief)
{
    weir_status status = WEIR_OK;
    for (const script_op *op = relief + 1; op <= relief + relief->slot && status == WEIR_OK; op++) {
        if (op->kind == SCRIPT_FREE) status = weir_free(s->slots[op->slot]);
        if (op->kind == SCRIPT_COMPLETE) status = gate_pass(&s->gates, op->where);
    }
    return status == WEIR_OK ? weir_empty_cache((int)relief->where) : status;
}

/* `played`: how many of the operations after it were played, too. */
static weir_status relieve(session *s, const script_op *relief, size_t *played)
{
    if (!relieves(s, relief)) return WEIR_OK;
    const script_op *wanted = refusable(s, relief);
    *played = relief->slot + (wanted && wanted->kind == SCRIPT_ALLOC);
    return wanted ? run_short(s, relief, wanted) : run_empty(s, relief);
}

/* From *at to `to`, or a few more, which belong together; then *at is where to go on. */
static bool play_part(session *s, const script_ops *ops, size_t *at, size_t to)
{
    void **slots = s->slots;
    size_t i = *at;

    for (; i < to; i++) {
        const script_op *op = &ops->at[i];
        weir_status status = WEIR_OK;
        size_t more = 0;
        switch ((script_kind)op->kind) {
        case SCRIPT_ALLOC: status = allocate(s, op, &slots[op->slot]); break;
        case SCRIPT_FREE: status = weir_free(slots[op->slot]); break;
        case SCRIPT_FREE_LATER: status = gate_free(&s->gates, op->where, slots[op->slot]); break;
        case SCRIPT_COMPLETE: status = gate_pass(&s->gates, op->where); break;
        case SCRIPT_RELIEVE: status = relieve(s, op, &more); break;
        case SCRIPT_EMPTY:
            if (!collected(s, op)) status = weir_empty_cache((int)op->where);
            break;
        case SCRIPT_EMPTY_POOL: status = weir_mempool_empty_cache(s->pools[op->where]); break;
        case SCRIPT_REFUSED:
            if (s->refused) status = ask_again(s, op);
            break;
        }
        if (status != WEIR_OK) {
            char what[64];
            snprintf(what, sizeof what, "replay stopped at operation %zu of %zu", i, ops->count);
            return session_refuse(s, what, status);
        }
        i += more;
    }
    *at = i;
    return true;
}

bool play_ops(session *s, const script_ops *ops)
{
    size_t at = 0;
    return play_part(s, ops, &at, ops->count);
}

/* Advances the clock as if the operations were spread evenly over the program's time. */
bool play_body(session *s)
{
    const script *sc = s->script;
    size_t at = 0;
    for (size_t tick = 1; tick <= TICKS; tick++) {
        const size_t to = (size_t)((double)sc->body.count * (double)tick / TICKS);
        if (!play_part(s, &sc->body, &at, to)) return false;
        const weir_status status = play_moves_clock(s) ? weir_host_clock_advance(sc->duration_ns / TICKS) : WEIR_OK;
        if (status != WEIR_OK) return session_refuse(s, "cannot move the clock", status);
    }
    return true;
}
