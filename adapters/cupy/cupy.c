/*
 * The functions that CuPy's CFunctionAllocator calls. They are not told the stream, so the Python side tells it before:
 * weir_cupy_use_stream() holds for the calling thread. A NULL for more than no bytes has its reason in weir_error_text().
 *
 * They are called with the interpreter's lock, and may wait for work on a stream, of which a host function written in
 * Python may be part: that lock is let go of meanwhile, by the two functions that the Python side found in its interpreter.
 *
 * What is allocated in a graph capture of PyTorch's is the graph's, whoever of the two asks first.
 */
#include "shared/streams.h"
#include "torch/scopes.h"

#include <stdatomic.h>

typedef void *(*save_function)(void);     /* PyEval_SaveThread */
typedef void (*restore_function)(void *); /* PyEval_RestoreThread */

WEIR_API void weir_cupy_use_interpreter(save_function save, restore_function restore);
WEIR_API void weir_cupy_use_stream(void *native);
WEIR_API void *weir_cupy_malloc(void *unused, size_t bytes, int device);
WEIR_API void weir_cupy_free(void *unused, void *pointer, int device);

static _Thread_local void *current;
static _Atomic(save_function) save_thread;
static _Atomic(restore_function) restore_thread;

/* Before the others. */
void weir_cupy_use_interpreter(save_function save, restore_function restore)
{
    atomic_store(&save_thread, save);
    atomic_store(&restore_thread, restore);
}

void weir_cupy_use_stream(void *native)
{
    current = native;
}

void *weir_cupy_malloc(void *unused, size_t bytes, int device)
{
    void *pointer = NULL;
    (void)unused;
    void *thread = save_thread();
    weir_status status = wa_scope_tell(device, current);
    if (status == WEIR_OK) status = wa_alloc(bytes, device, current, &pointer);
    restore_thread(thread);
    return status == WEIR_OK ? pointer : NULL;
}

/* Called from destructors, which have nobody to tell. */
void weir_cupy_free(void *unused, void *pointer, int device)
{
    (void)unused, (void)device;
    void *thread = save_thread();
    (void)!weir_free(pointer);
    restore_thread(thread);
}
