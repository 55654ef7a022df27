/*
 * driver: the simulated device under a modelled policy: how much memory is taken, where it is mapped, which calls were
 * made and how long they would have taken (weir/host.h: weir_host_cost). Nothing is allocated. Addresses are made up,
 * never reused, and never adjacent for two calls, so that nothing is merged by mistake.
 *
 * Physical memory has addresses of its own, by which tests find out whether two live blocks share a byte.
 * Owner: the caller of driver_init, until driver_release. One thread uses it.
 */
#ifndef WEIR_TOOLS_REPLAY_PEERS_DRIVER_H
#define WEIR_TOOLS_REPLAY_PEERS_DRIVER_H

#include "weir/host.h"

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

/* An address range and the physical memory mapped there, in handles of one size. */
typedef struct driver_map {
    RB_ENTRY(driver_map) link;
    uint64_t address, bytes, physical, handle;
} driver_map;
RB_HEAD(driver_maps, driver_map);

typedef struct driver {
    uint64_t limit, used, peak; /* bytes */
    uint64_t calls, nanoseconds;
    uint64_t next_address, next_physical;
    struct driver_maps maps;
    void (*refuse)(void *user); /* called, once, by the next driver_create, which fails; NULL: it need not */
    void *user;
} driver;

void driver_init(driver *d, uint64_t limit);
void driver_release(driver *d);

/* Counts a call unrelated to memory: of an event, a wait. */
void driver_call(driver *d, enum weir_backend_entry entry);

/* Counts a call that the back end's cost model has no entry for. */
void driver_spend(driver *d, uint64_t nanoseconds);

/* cudaMalloc. False: the device lacks that much. */
bool driver_alloc(driver *d, uint64_t bytes, uint64_t *address);
/* Frees all of one driver_alloc. */
void driver_free(driver *d, uint64_t address, uint64_t bytes);

/* Reserves an address range without memory. */
uint64_t driver_reserve(driver *d, uint64_t bytes);
void driver_unreserve(driver *d);

/* Creates physical memory in handles of `handle` bytes. False, and none is kept, when the device lacks that much. */
bool driver_create(driver *d, uint64_t bytes, uint64_t handle, uint64_t *physical);
void driver_destroy(driver *d, uint64_t bytes, uint64_t handle);

/* Maps handles at `address`, where nothing is mapped. They become usable with driver_access, which is one call. */
void driver_map_at(driver *d, uint64_t address, uint64_t bytes, uint64_t handle, uint64_t physical);
void driver_access(driver *d, uint64_t bytes, uint64_t handle);
/* Unmaps whole handles, one call each. Their memory stays. */
void driver_unmap(driver *d, uint64_t address, uint64_t bytes);

/* What is mapped at the address, or NULL. */
const driver_map *driver_find(const driver *d, uint64_t address);

#endif
