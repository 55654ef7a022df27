/*
 * The functions that CuPy's CFunctionAllocator calls. They are not told the stream, so the Python side tells it before:
 * weir_cupy_use_stream() holds for the calling thread. A NULL for more than no bytes has its reason in weir_error_text().
 */
#include "shared/streams.h"

WEIR_API void weir_cupy_use_stream(void *native);
WEIR_API void *weir_cupy_malloc(void *unused, size_t bytes, int device);
WEIR_API void weir_cupy_free(void *unused, void *pointer, int device);

static _Thread_local void *current;

void weir_cupy_use_stream(void *native)
{
    current = native;
}

void *weir_cupy_malloc(void *unused, size_t bytes, int device)
{
    void *pointer = NULL;
    (void)unused;
    return wa_alloc(bytes, device, current, &pointer) == WEIR_OK ? pointer : NULL;
}

/* Called from destructors, which have nobody to tell. */
void weir_cupy_free(void *unused, void *pointer, int device)
{
    (void)unused, (void)device;
    (void)!weir_free(pointer);
}
