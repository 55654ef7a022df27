/*
 * scopes: PyTorch's memory pools, by its ids, and the scopes in which it asks for memory from one: a graph capture, or
 * what a filter recognises by its stream or thread. The one opened last counts, of those whose filter says so.
 * PyTorch opens a capture's scope before it begins the capture, and its filter says which streams take part. So weir
 * learns of a capture at the first allocation inside it (weir_graph_adopt), and routes later allocations itself. In any
 * other scope, which may be part of a capture, memory comes from the pool by name, unless its stream is in a capture
 * that weir was not told of: that is the scope's own, such as the body of a conditional node. What a scope opened is
 * kept until the scope's release, which for a capture is the end of the graph; a graph is kept until the last release
 * of its pool.
 * Owner: the process; a forked child, in which weir serves nobody, has none. Lock: one, held while filters run and
 * while weir is told of a capture, but not while weir may wait for work or call the program. An allocation takes it
 * only while scopes are open whose capture weir has not been told of.
 */
#ifndef WEIR_ADAPTERS_TORCH_SCOPES_H
#define WEIR_ADAPTERS_TORCH_SCOPES_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `call` tells whether a native stream is in the scope; `drop` frees the object. `now`: it says so already as the scope
 * opens, of the stream that is current then; so the scope is not that of a capture that is about to begin. */
typedef struct wa_filter {
    bool (*call)(void *object, void *native);
    void (*drop)(void *object);
    void *object;
    bool now;
} wa_filter;

/* Opens a scope and adds a reference to the pool, until wa_scope_release(). Takes over the filter, even on failure. */
weir_status wa_scope_begin(int device, weir_mempool torchs, wa_filter filter);

/* Adds a reference alone. `options`: what the pool is like, if it does not exist yet. */
weir_status wa_scope_hold(weir_mempool torchs, const weir_mempool_options *options);

/* How many the pool has; 0: there is none. *ours: weir's name of it. */
int wa_scope_references(int device, weir_mempool torchs, weir_mempool *ours);

/* PyTorch's id of weir's pool, even after its last reference; {0, 0}: none of PyTorch's. */
weir_mempool wa_scope_torchs(int device, weir_mempool ours);

/* The device's pools, of which at most `capacity` are told: PyTorch's ids, and weir's. Returns how many there are. */
size_t wa_scope_pools(int device, weir_mempool *torchs, weir_mempool *ours, size_t capacity);

/* Ends the pool's scope that the calling thread opened last; if it has opened none, the last opened of all. */
weir_status wa_scope_end(int device, weir_mempool torchs);

/* Drops a reference to the pool. */
weir_status wa_scope_release(int device, weir_mempool torchs);

/* Serves the request if the stream is in an open scope that weir cannot recognise itself; else *served stays false. */
weir_status wa_scope_alloc(size_t bytes, int device, void *native, void **out, bool *served);

/* For other libraries' requests: tells weir of the capture that the stream is in, if a scope is open for it. */
weir_status wa_scope_tell(int device, void *native);

#ifdef __cplusplus
}
#endif
#endif
