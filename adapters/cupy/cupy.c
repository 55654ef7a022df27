/*
 * The functions that CuPy's CFunctionAllocator calls. CuPy does not pass them the stream but the allocator's own
 * parameter, so the Python side has an allocator for each stream, whose parameter that is. Nothing is kept for the
 * thread in between: Python may run a finalizer or a signal handler there, which may allocate on another stream. When
 * malloc of more than 0 bytes returns NULL, weir_error_text() has the reason.
 *
 * They are called with the interpreter's lock held, and may wait for work on a stream, which may include a host
 * function written in Python. So they release that lock meanwhile, through the two functions that the Python side found
 * in its interpreter.
 *
 * Memory allocated in one of PyTorch's graph captures belongs to the graph, whether PyTorch or CuPy asks first. Of the
 * captures that CuPy begins the Python side tells weir.
 */
#include "shared/streams.h"
#include "torch/scopes.h"

#include <stdatomic.h>

typedef void *(*save_function)(void);     /* PyEval_SaveThread */
typedef void (*restore_function)(void *); /* PyEval_RestoreThread */

WEIR_API void weir_cupy_use_interpreter(save_function save, restore_function restore);
WEIR_API weir_status weir_cupy_adopt(void *native, int device, weir_graph *out);
WEIR_API void *weir_cupy_malloc(void *native, size_t bytes, int device);
WEIR_API void weir_cupy_free(void *unused, void *pointer, int device);

static _Atomic(save_function) save_thread;
static _Atomic(restore_function) restore_thread;

/* To be called before the others. */
void weir_cupy_use_interpreter(save_function save, restore_function restore)
{
    atomic_store(&save_thread, save);
    atomic_store(&restore_thread, restore);
}

/* CuPy has begun to capture the stream. */
weir_status weir_cupy_adopt(void *native, int device, weir_graph *out)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_stream stream = { 0 };
    const weir_status status = wa_stream_of(device, native, &stream);
    return status == WEIR_OK ? weir_graph_adopt(stream, &options, out) : status;
}

void *weir_cupy_malloc(void *native, size_t bytes, int device)
{
    void *pointer = NULL;
    void *thread = save_thread();
    weir_status status = wa_scope_tell(device, native);
    if (status == WEIR_OK) status = wa_alloc(bytes, device, native, &pointer);
    restore_thread(thread);
    return status == WEIR_OK ? pointer : NULL;
}

/* Called from destructors, which cannot report an error. */
void weir_cupy_free(void *unused, void *pointer, int device)
{
    (void)unused, (void)device;
    void *thread = save_thread();
    (void)!weir_free(pointer);
    restore_thread(thread);
}
