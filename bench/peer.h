/*
 * peer: one thing under test, weir in one of its forms or somebody else, as a table of functions. The loads know nothing
 * else of whom they time, so all are timed by the same loops. A peer outside this program is a shared object that exports
 * bench_peer_get(), named with --peer.
 *
 * A peer that cannot be used here says so from open(). One that fails later stops the process with a message. Members
 * that are NULL: the peer has no such thing.
 */
#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_PEER_VERSION 1

/* Kind of handle of weir-bench's own, for machines without NVIDIA's libraries. */
#define BENCH_STANDIN_KIND 0

typedef struct bench_peer {
    uint32_t version; /* BENCH_PEER_VERSION */
    const char *name;
    const char *(*open)(void); /* device 0, nothing cached, peaks 0; NULL, or why it cannot be used here */
    void (*close)(void);       /* memory cached since open() goes back to the driver */
    uint64_t (*default_stream)(void);
    uint64_t (*stream)(void);                      /* another one; 32 at least can be had */
    void (*enter)(uint64_t stream);                /* the calling thread is going to use the stream: once, not timed */
    void *(*alloc)(size_t bytes, uint64_t stream); /* NULL: out of memory */
    void (*release)(void *pointer, uint64_t stream);
    void (*empty)(void);             /* cached memory goes back to the driver; no work is underway */
    uint64_t (*reserved_peak)(void); /* most bytes held since open(), by the peer's own count */
    uint64_t (*device_memory)(void); /* bytes in use on the device, by the driver's figure, all processes */
    void *(*handle)(weir_handle_kind kind, uint64_t stream); /* the calling thread's; NULL: it has no such kind */
} bench_peer;

/* What the shared object of a peer exports. */
const bench_peer *bench_peer_get(void);
typedef const bench_peer *(*bench_peer_getter)(void);

#ifdef __cplusplus
}
#endif

#endif
