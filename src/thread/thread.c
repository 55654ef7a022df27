#include "thread/thread.h"

#include "base/meta.h"

#include <pthread.h>

/* What every thread has until it changes something: epoch 0 is never the library's, so it is always void. */
static wr_thread nothing = { .device = -1 };

/* One pointer of static TLS, so that reaching it is one instruction also from a library loaded with dlopen. */
static WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_thread *self = &nothing;

static pthread_key_t exit_key;
static pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;
static int exit_key_error;

static void at_thread_exit(void *thread)
{
    self = &nothing; /* for destructors of others that run later and call weir */
    wr_meta_free(thread);
}

static void make_exit_key(void)
{
    exit_key_error = pthread_key_create(&exit_key, at_thread_exit);
}

static bool is_void(const wr_thread *t)
{
    return t->epoch != atomic_load_explicit(&wr_runtime_global.epoch, memory_order_relaxed);
}

/* The thread's own context, valid for this epoch. */
static weir_status own(wr_thread **out)
{
    if (self == &nothing) {
        void *made = NULL;
        pthread_once(&exit_key_once, make_exit_key);
        WR_ENSURE(exit_key_error == 0, WEIR_ERR_OUT_OF_HOST_MEMORY, "no thread-specific key is left in this process");
        WR_TRY(wr_meta_alloc(sizeof(wr_thread), "thread context", &made));
        if (pthread_setspecific(exit_key, made) != 0) {
            wr_meta_free(made);
            return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY, "no memory for this thread's context");
        }
        self = made;
        *self = nothing;
    }
    if (is_void(self)) {
        *self = nothing;
        self->epoch = atomic_load_explicit(&wr_runtime_global.epoch, memory_order_relaxed);
    }
    *out = self;
    return WEIR_OK;
}

weir_status wr_thread_device(int *ordinal)
{
    const weir_backend *backend = wr_runtime_global.backend;
    /* Where the driver has a current device it is the truth: others in the process set it too. */
    if (backend->device_get_current) return wr_driver(backend, device_get_current, ordinal);
    const wr_thread *t = self;
    *ordinal = t->device >= 0 && !is_void(t) ? t->device : 0;
    return WEIR_OK;
}

weir_status wr_thread_set_device(int ordinal)
{
    const weir_backend *backend = wr_runtime_global.backend;
    wr_thread *t = NULL;
    WR_TRY(own(&t));
    if (backend->device_set_current) WR_TRY(wr_driver(backend, device_set_current, ordinal));
    t->device = ordinal;
    return WEIR_OK;
}

weir_status wr_thread_resolve_device(int ordinal, wr_device **device)
{
    WR_TRY(wr_runtime_enter());
    if (ordinal == WEIR_DEVICE_CURRENT) WR_TRY(wr_thread_device(&ordinal));
    return wr_runtime_device(ordinal, device);
}

wr_stream *wr_thread_stream(wr_device *device)
{
    const wr_thread *t = self;
    const uint64_t id = is_void(t) ? 0 : t->stream_ids[device->ordinal];
    wr_stream *s = id ? wr_stream_find(&device->streams, id) : NULL;
    return s ? s : wr_stream_default_of(&device->streams);
}

weir_status wr_thread_set_stream(wr_device *device, const wr_stream *stream)
{
    wr_thread *t = NULL;
    WR_TRY(own(&t));
    t->stream_ids[device->ordinal] = atomic_load_explicit(&stream->id, memory_order_relaxed);
    return WEIR_OK;
}

weir_status wr_thread_resolve_stream(weir_stream stream, wr_device **device, wr_stream **out)
{
    if (stream.id == 0) {
        WR_TRY(wr_thread_resolve_device(WEIR_DEVICE_CURRENT, device));
        *out = wr_thread_stream(*device);
        return WEIR_OK;
    }
    WR_TRY(wr_runtime_enter());
    int ordinal = wr_stream_id_device(stream.id);
    wr_device *d = ordinal < WR_DEVICE_MAX
                       ? atomic_load_explicit(&wr_runtime_global.devices[ordinal], memory_order_acquire)
                       : NULL;
    wr_stream *s = d ? wr_stream_find(&d->streams, stream.id) : NULL;
    WR_ENSURE(s, WEIR_ERR_INVALID_STREAM,
              "stream %#llx does not exist: it was destroyed, or is from before a weir_close, or never was one",
              (unsigned long long)stream.id);
    *device = d;
    *out = s;
    return WEIR_OK;
}
