/*
 * scopes: PyTorch's memory pools, by its ids, and the scopes in which it asks for memory from one: a graph capture, or
 * anything else that a filter recognises by its stream.
 * PyTorch opens a scope before it begins the capture, and its filter says which streams take part. So weir learns of a
 * capture at the first allocation inside it (weir_graph_adopt), and routes what follows itself. What one scope opened is
 * kept until its release, which for a capture is the end of the graph, and a graph until the last release of its pool.
 * Owner: the process. Lock: one, held across filters and while weir is told of a capture, and not while it may wait for
 * work or ask the program; an allocation takes it while scopes are open whose capture weir has not been told of.
 */
#ifndef WEIR_ADAPTERS_TORCH_SCOPES_H
#define WEIR_ADAPTERS_TORCH_SCOPES_H

#include <stdbool.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a native stream is in the scope; object is freed with drop. */
typedef struct wa_filter {
    bool (*call)(void *object, void *native);
    void (*drop)(void *object);
    void *object;
} wa_filter;

/* Takes the filter over, also on failure. One reference to the pool more, until wa_scope_release(). */
weir_status wa_scope_begin(int device, weir_mempool torchs, wa_filter filter);

/* Ends the pool's scope that was opened last. */
weir_status wa_scope_end(int device, weir_mempool torchs);

/* One reference less. */
weir_status wa_scope_release(int device, weir_mempool torchs);

/* Serves the request if the stream is in an open scope that weir cannot know; else *served stays false. */
weir_status wa_scope_alloc(size_t bytes, int device, void *native, void **out, bool *served);

/* For requests that are not PyTorch's: weir is told of the capture that the stream is in, if a scope is open for it. */
weir_status wa_scope_tell(int device, void *native);

#ifdef __cplusplus
}
#endif
#endif
