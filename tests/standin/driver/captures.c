#include "standin/driver/driver.h"

#include <stdlib.h>
#include <sys/queue.h>

/* A capture from its beginning to its end, invalidated or not. Guarded by standin_lock. */
typedef struct capture {
    LIST_ENTRY(capture) link;
    void *origin;
    int device;
    int mode;
    bool blocking;
    pthread_t thread;
    uint64_t id;
    void **tips; /* the last answer, in the driver's own array */
} capture;

static LIST_HEAD(, capture) captures = LIST_HEAD_INITIALIZER(captures);
static _Thread_local int thread_mode = WEIR_CAPTURE_GLOBAL;

static void drop(capture *c)
{
    LIST_REMOVE(c, link);
    free(c->tips);
    free(c);
}

void *standin_stream(void *stream)
{
    return (uintptr_t)stream == 1 ? NULL : stream;
}

/* ---- what goes with a capture ------------------------------------------------------------------------------------ */

/* What the calling thread's capture mode forbids beside `c`, as cuThreadExchangeStreamCaptureMode() documents it. */
static bool forbids(const capture *c)
{
    if (thread_mode == WEIR_CAPTURE_RELAXED || c->mode == WEIR_CAPTURE_RELAXED) return false;
    if (pthread_equal(c->thread, pthread_self())) return true;
    return thread_mode == WEIR_CAPTURE_GLOBAL && c->mode == WEIR_CAPTURE_GLOBAL;
}

/* The host back end invalidates a capture when its stream is queried. */
static void invalidate_locked(const capture *c)
{
    if (wr_backend_host.stream_query(c->device, c->origin) != WEIR_ERR_CAPTURE) abort();
}

int standin_unsafe(void)
{
    int code = 0;
    capture *c;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(c, &captures, link) {
        if (!forbids(c)) continue;
        invalidate_locked(c);
        code = CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&standin_lock);
    return code;
}

bool standin_invalidate_all(void)
{
    capture *c;
    pthread_mutex_lock(&standin_lock);
    bool any = !LIST_EMPTY(&captures);
    LIST_FOREACH(c, &captures, link) invalidate_locked(c);
    pthread_mutex_unlock(&standin_lock);
    return any;
}

void standin_forget_captures(int device)
{
    capture *c, *next;
    for (c = LIST_FIRST(&captures); c != NULL; c = next) {
        next = LIST_NEXT(c, link);
        if (c->device == device) drop(c);
    }
}

int standin_exchange(int *mode)
{
    if (*mode < WEIR_CAPTURE_GLOBAL || *mode > WEIR_CAPTURE_RELAXED) return INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return 0;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

int standin_capture_state(int device, void *stream, weir_capture_state *state, uint64_t *id)
{
    *state = WEIR_CAPTURE_NONE;
    return standin_code(wr_backend_host.capture_status(device, standin_stream(stream), state, id));
}

bool standin_capturing(int device, void *stream)
{
    weir_capture_state state;
    uint64_t id;
    return standin_capture_state(device, stream, &state, &id) == 0 && state != WEIR_CAPTURE_NONE;
}

int standin_implicit(int device, void *stream, bool uses)
{
    int code = 0;
    capture *c;
    if (standin_stream(stream) != NULL) return 0;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(c, &captures, link) {
        if (!c->blocking || c->device != device) continue;
        if (uses) invalidate_locked(c);
        code = CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&standin_lock);
    return code;
}

int standin_capture_begin(int device, void *stream, int mode, bool blocking)
{
    weir_capture_state state;
    uint64_t id;
    if (mode < WEIR_CAPTURE_GLOBAL || mode > WEIR_CAPTURE_RELAXED) return INVALID_VALUE;
    if (standin_stream(stream) == NULL) return CAPTURE_UNSUPPORTED;
    TRY(standin_capture_state(device, stream, &state, &id));
    if (state != WEIR_CAPTURE_NONE) return ILLEGAL_STATE;

    capture *made = malloc(sizeof *made);
    if (made == NULL) return OUT_OF_MEMORY;
    *made =
        (capture){ .origin = stream, .device = device, .mode = mode, .blocking = blocking, .thread = pthread_self() };
    pthread_mutex_lock(&standin_lock);
    weir_status status = wr_backend_host.capture_begin(device, stream, (weir_capture_mode)mode);
    int code = standin_code(status);
    if (code == 0) {
        LIST_INSERT_HEAD(&captures, made, link);
        code = standin_capture_state(device, stream, &state, &made->id);
    }
    pthread_mutex_unlock(&standin_lock);
    if (status != WEIR_OK) free(made);
    return code;
}

static int end_locked(int device, void *stream, weir_capture_state state, void **graph)
{
    capture *c;
    LIST_FOREACH(c, &captures, link)
        if (c->origin == stream) break;
    if (c == NULL) return CAPTURE_UNMATCHED;
    weir_status status = wr_backend_host.capture_end(device, stream, graph);
    if (status == WEIR_ERR_WRONG_THREAD) return standin_code(status);
    drop(c);
    if (status == WEIR_OK) return 0;
    return state == WEIR_CAPTURE_INVALIDATED ? CAPTURE_INVALIDATED : CAPTURE_UNJOINED;
}

int standin_capture_end(int device, void *stream, void **graph)
{
    weir_capture_state state;
    uint64_t id;
    *graph = NULL;
    TRY(standin_capture_state(device, stream, &state, &id));
    if (state == WEIR_CAPTURE_NONE) return ILLEGAL_STATE;
    pthread_mutex_lock(&standin_lock);
    int code = end_locked(device, stream, state, graph);
    pthread_mutex_unlock(&standin_lock);
    return code;
}

static int tell_tips_locked(int device, void *stream, uint64_t id, void *const **tips, size_t *count)
{
    capture *c;
    size_t found;
    LIST_FOREACH(c, &captures, link)
        if (c->id == id) break;
    if (c == NULL) return ILLEGAL_STATE;
    TRY(standin_code(wr_backend_host.capture_tips(device, standin_stream(stream), NULL, 0, &found)));
    void **made = realloc(c->tips, (found + 1) * sizeof *made);
    if (made == NULL) return OUT_OF_MEMORY;
    c->tips = made;
    TRY(standin_code(wr_backend_host.capture_tips(device, standin_stream(stream), made, found, &found)));
    *tips = made;
    if (count != NULL) *count = found;
    return 0;
}

int standin_capture_tips(int device, void *stream, uint64_t id, void *const **tips, size_t *count)
{
    pthread_mutex_lock(&standin_lock);
    int code = tell_tips_locked(device, stream, id, tips, count);
    pthread_mutex_unlock(&standin_lock);
    return code;
}
