/*
 * peer: one allocator or handle pool under test, weir in one of its forms or another, as a table of functions. The
 * loads know nothing else about it, so all peers are timed by the same loops. A peer outside this program is a shared
 * object that exports bench_peer_get(), named with --peer.
 *
 * open() says when a peer cannot be used here. A later failure stops the process with a message. Members are NULL for
 * what the peer lacks.
 */
#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_PEER_VERSION 2

/* weir-bench's own kind of handle, for machines without NVIDIA's libraries. */
#define BENCH_STANDIN_KIND 0

typedef struct bench_peer {
    uint32_t version; /* BENCH_PEER_VERSION */
    const char *name;
    const char *(*open)(void); /* device 0, nothing cached, peaks 0; NULL, or why it cannot be used here */
    void (*close)(void);       /* memory cached since open() goes back to the driver */
    uint64_t (*default_stream)(void);
    uint64_t (*stream)(void);                      /* a new stream; at least 32 can be made */
    void (*enter)(uint64_t stream);                /* called once, untimed, before the calling thread uses the stream */
    void *(*alloc)(size_t bytes, uint64_t stream); /* NULL: out of memory */
    void (*release)(void *pointer, uint64_t stream);
    void (*empty)(void);             /* gives cached memory back to the driver; no work is underway */
    uint64_t (*reserved_peak)(void); /* most bytes held since open(), by the peer's own count */
    uint64_t (*device_memory)(void); /* bytes in use on the device, of all processes, by the driver's figure */
    void *(*handle)(weir_handle_kind kind, uint64_t stream); /* the calling thread's handle; NULL: no such kind */
    void (*use)(void *pointer, uint64_t stream);             /* says that another stream uses the block, too */
} bench_peer;

/* What the shared object of a peer exports. */
const bench_peer *bench_peer_get(void);
typedef const bench_peer *(*bench_peer_getter)(void);

#ifdef __cplusplus
}
#endif

#endif
