#include "backend/backend.h"
#include "backend/host/host_internal.h"
#include "base/meta.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Address space costs nothing until touched, and virtual memory reserves several times the memory that fills it, so a
 * device gets far more addresses than memory. All devices together stay below this. */
#define ADDRESSES_TOTAL ((uint64_t)16 << 40)
#define ADDRESSES_PER_BYTE 64
#define ADDRESSES_LEAST ((uint64_t)1 << 40)

/* ---- arenas ------------------------------------------------------------------------------------------------------ */

static uint64_t wanted_addresses(void)
{
    uint64_t most = ADDRESSES_TOTAL / (uint64_t)wr_host.count & ~(WR_HOST_GRANULARITY - 1);
    if (wr_host.memory >= most / ADDRESSES_PER_BYTE) return most;
    uint64_t wanted = wr_round_up(wr_host.memory, WR_HOST_GRANULARITY) * ADDRESSES_PER_BYTE;
    if (wanted < ADDRESSES_LEAST) wanted = ADDRESSES_LEAST;
    return wanted < most ? wanted : most;
}

/* Aligns to the granularity by reserving too much and giving the ends back. */
static void *reserve(uint64_t bytes)
{
    uint64_t with_slack = bytes + WR_HOST_GRANULARITY;
    char *memory = mmap(NULL, with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    uint64_t head = wr_round_up((uintptr_t)memory, WR_HOST_GRANULARITY) - (uintptr_t)memory;
    if (head > 0) munmap(memory, head);
    munmap(memory + head + bytes, WR_HOST_GRANULARITY - head);
    return memory + head;
}

/* Takes less if the process may not have so much (ulimit -v, sanitizers), down to the device's memory. */
static weir_status arena_open(wr_host_arena *arena)
{
    uint64_t least = wr_round_up(wr_host.memory, WR_HOST_GRANULARITY);
    uint64_t bytes = wanted_addresses();
    void *start = NULL;
    if (bytes < least) bytes = least;
    while ((start = reserve(bytes)) == NULL && bytes / 2 >= least) bytes = wr_round_up(bytes / 2, WR_HOST_GRANULARITY);
    if (start == NULL)
        return wr_fail_native(WEIR_ERR_OUT_OF_HOST_MEMORY, "host", errno,
                              "host: cannot reserve %" PRIu64 " bytes of address space: %s; lower WEIR_HOST_MEMORY or "
                              "raise the process's limit (ulimit -v)",
                              bytes, strerror(errno));

    weir_status status = wr_host_space_init(&arena->space, bytes);
    if (status != WEIR_OK) {
        munmap(start, bytes);
        return status;
    }
    arena->start = start;
    arena->bytes = bytes;
    return WEIR_OK;
}

static void arena_close(wr_host_arena *arena)
{
    munmap(arena->start, arena->bytes);
    wr_host_space_clear(&arena->space);
}

/* Some machines have pages of 64 KiB, and give access to whole ones only. What nobody can touch lies in the same places
 * on all machines, so that a replay tells the same everywhere. */
static void set_page(wr_host_arena *arena)
{
    arena->page = arena->hollow ? 4096 : (uint64_t)sysconf(_SC_PAGESIZE);
}

weir_status wr_host_memory_open(wr_host_device *device)
{
    WR_TRY(arena_open(&device->memory));
    weir_status status = arena_open(&device->pinned);
    if (status != WEIR_OK) {
        arena_close(&device->memory);
        return status;
    }
    device->memory.hollow = atomic_load(&wr_host.hollow);
    set_page(&device->memory);
    set_page(&device->pinned);
    device->used = 0;
    device->file = -1;
    device->places = NULL;
    device->place_count = device->place_next = 0;
    return WEIR_OK;
}

void wr_host_memory_close(wr_host_device *device)
{
    wr_host_vm_close(device);
    arena_close(&device->memory);
    arena_close(&device->pinned);
    wr_meta_free(device->places);
    device->places = NULL;
}

weir_status wr_host_fail_mapping(const char *call, const void *base, uint64_t bytes)
{
    int error = errno;
    return wr_fail_native(WEIR_ERR_OUT_OF_HOST_MEMORY, "host", error,
                          "host: %s of %" PRIu64 " bytes at %p: %s; the process may have too many mappings "
                          "(vm.max_map_count), or may have no more data (ulimit -d)",
                          call, bytes, base, strerror(error));
}

static weir_status commit(const wr_host_arena *arena, const wr_host_range *range)
{
    char *base = arena->start + range->base;
    if (arena->hollow) return WEIR_OK;
    if (mprotect(base, range->bytes, PROT_READ | PROT_WRITE) != 0)
        return wr_host_fail_mapping("mprotect", base, range->bytes);
    return WEIR_OK;
}

weir_status wr_host_decommit(const wr_host_arena *arena, void *base, uint64_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (arena->hollow) return WEIR_OK;
    if (mmap(base, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) return wr_host_fail_mapping("mmap", base, bytes);
    return WEIR_OK;
}

static weir_status arena_take(wr_host_arena *arena, uint64_t bytes, wr_host_range **range)
{
    uint64_t alignment = bytes % WR_HOST_GRANULARITY == 0 ? WR_HOST_GRANULARITY : arena->page;
    WR_TRY(wr_host_space_take(&arena->space, bytes, alignment, range));
    WR_ENSURE(*range != NULL, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "host: no contiguous %" PRIu64 " bytes are free in %" PRIu64 " bytes of address space; free some", bytes,
              arena->bytes);
    return WEIR_OK;
}

static weir_status arena_give(wr_host_arena *arena, void *base, uint64_t bytes, wr_host_use use, const char *call)
{
    uint64_t offset = (uint64_t)((uintptr_t)base - (uintptr_t)arena->start);
    wr_host_range *range = wr_host_space_find(&arena->space, offset);
    WR_ENSURE(range != NULL && range->use == use, WEIR_ERR_UNKNOWN_POINTER,
              "host: %s: nothing was allocated at %p, or it was already freed", call, base);
    WR_ENSURE(range->bytes == bytes, WEIR_ERR_INVALID_ARGUMENT,
              "host: %s: %p was allocated with %" PRIu64 " bytes (in whole pages), not %" PRIu64, call, base,
              range->bytes, bytes);
    WR_TRY(wr_host_decommit(arena, base, bytes));
    wr_host_space_give(&arena->space, range);
    return WEIR_OK;
}

/* Rounds up to whole pages; 0 for a size that cannot be. */
static uint64_t whole_pages(const wr_host_arena *arena, size_t bytes)
{
    return bytes <= SIZE_MAX - arena->page ? wr_round_up(bytes, arena->page) : 0;
}

/* ---- segments and managed memory --------------------------------------------------------------------------------- */

weir_status wr_host_charge(wr_host_device *device, uint64_t bytes)
{
    uint64_t vacant = wr_host.memory - device->used;
    if (bytes > vacant) {
        char asked[WR_SIZE_TEXT], left[WR_SIZE_TEXT], total[WR_SIZE_TEXT];
        return wr_fail_native(WEIR_ERR_OUT_OF_MEMORY, "host", 0,
                              "host: %s requested, but %s of %s are free; free some or raise WEIR_HOST_MEMORY",
                              wr_size_format(bytes, asked), wr_size_format(vacant, left),
                              wr_size_format(wr_host.memory, total));
    }
    device->used += bytes;
    return WEIR_OK;
}

static void end_places(wr_host_device *device)
{
    wr_meta_free(device->places);
    device->places = NULL;
    device->place_count = device->place_next = 0;
}

static weir_status take_place(wr_host_device *device, size_t asked, uint64_t bytes, wr_host_range **range)
{
    *range = NULL;
    if (device->place_next == device->place_count) return WEIR_OK;
    const weir_host_place *place = &device->places[device->place_next];
    if (place->bytes == asked) WR_TRY(wr_host_space_take_at(&device->memory.space, place->offset, bytes, range));
    if (*range == NULL || ++device->place_next == device->place_count) end_places(device);
    return WEIR_OK;
}

static weir_status take_memory_locked(wr_host_device *device, wr_host_use use, size_t asked, uint64_t bytes,
                                      wr_host_range **out)
{
    wr_host_range *range = NULL;
    WR_TRY(wr_host_charge(device, bytes));
    weir_status status = use == WR_HOST_SEGMENT ? take_place(device, asked, bytes, &range) : WEIR_OK;
    if (status == WEIR_OK && range == NULL) status = arena_take(&device->memory, bytes, &range);
    if (status != WEIR_OK) goto fail;
    range->use = use;
    status = commit(&device->memory, range);
    if (status != WEIR_OK) goto fail_range;
    *out = range;
    return WEIR_OK;

fail_range:
    wr_host_space_give(&device->memory.space, range);
fail:
    device->used -= bytes;
    return status;
}

static weir_status memory_alloc(enum weir_backend_entry entry, wr_host_use use, int ordinal, size_t bytes, void **base)
{
    wr_host_device *device;
    wr_host_range *range;
    const char *call = wr_host_entry_name(entry);
    WR_TRY(wr_host_enter(entry, ordinal, &device));
    WR_ENSURE(bytes > 0 && base != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: %s: %s", call,
              base == NULL ? "base is NULL" : "0 bytes requested");
    uint64_t rounded = whole_pages(&device->memory, bytes);
    WR_ENSURE(rounded > 0, WEIR_ERR_OUT_OF_MEMORY, "host: %s: %zu bytes are more than any device has", call, bytes);

    wr_lock_acquire(&device->memory_lock);
    weir_status status = take_memory_locked(device, use, bytes, rounded, &range);
    if (status == WEIR_OK) *base = device->memory.start + range->base;
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) wr_host_spend(entry, bytes);
    return status;
}

static weir_status memory_free(enum weir_backend_entry entry, wr_host_use use, int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(entry, ordinal, &device));
    uint64_t rounded = whole_pages(&device->memory, bytes);
    wr_lock_acquire(&device->memory_lock);
    weir_status status = arena_give(&device->memory, base, rounded, use, wr_host_entry_name(entry));
    if (status == WEIR_OK) device->used -= rounded;
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) wr_host_spend(entry, bytes);
    return status;
}

weir_status wr_host_segment_alloc(int ordinal, size_t bytes, void **base)
{
    return memory_alloc(WEIR_BACKEND_segment_alloc, WR_HOST_SEGMENT, ordinal, bytes, base);
}

weir_status wr_host_segment_free(int ordinal, void *base, size_t bytes)
{
    return memory_free(WEIR_BACKEND_segment_free, WR_HOST_SEGMENT, ordinal, base, bytes);
}

weir_status wr_host_managed_alloc(int ordinal, size_t bytes, void **base)
{
    return memory_alloc(WEIR_BACKEND_managed_alloc, WR_HOST_MANAGED, ordinal, bytes, base);
}

weir_status wr_host_managed_free(int ordinal, void *base, size_t bytes)
{
    return memory_free(WEIR_BACKEND_managed_free, WR_HOST_MANAGED, ordinal, base, bytes);
}

/* ---- pinned memory: plain memory with a record, so that a wrong free is noticed ---------------------------------- */

weir_status wr_host_pinned_alloc(int ordinal, size_t bytes, void **base)
{
    wr_host_device *device;
    wr_host_range *range;
    WR_TRY(wr_host_enter(WEIR_BACKEND_pinned_alloc, ordinal, &device));
    WR_ENSURE(bytes > 0 && base != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: pinned_alloc: %s",
              base == NULL ? "base is NULL" : "0 bytes requested");
    uint64_t rounded = whole_pages(&device->pinned, bytes);
    WR_ENSURE(rounded > 0, WEIR_ERR_OUT_OF_HOST_MEMORY, "host: pinned_alloc: %zu bytes are more than any machine has",
              bytes);

    wr_lock_acquire(&device->memory_lock);
    weir_status status = arena_take(&device->pinned, rounded, &range);
    if (status == WEIR_OK) {
        range->use = WR_HOST_PINNED;
        status = commit(&device->pinned, range);
        if (status == WEIR_OK)
            *base = device->pinned.start + range->base;
        else
            wr_host_space_give(&device->pinned.space, range);
    }
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) wr_host_spend(WEIR_BACKEND_pinned_alloc, bytes);
    return status;
}

weir_status wr_host_pinned_free(int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_pinned_free, ordinal, &device));
    wr_lock_acquire(&device->memory_lock);
    uint64_t rounded = whole_pages(&device->pinned, bytes);
    weir_status status = arena_give(&device->pinned, base, rounded, WR_HOST_PINNED, "pinned_free");
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) wr_host_spend(WEIR_BACKEND_pinned_free, bytes);
    return status;
}

/* ---- registered memory: a record for the whole process, because every device reaches it -------------------------- */

typedef struct registration {
    LIST_ENTRY(registration) link;
    int device;
    uintptr_t base;
    size_t bytes;
} registration;

static wr_lock registrations_lock = WR_LOCK_INITIALIZER(WR_RANK_BACKEND, "host registrations");
static LIST_HEAD(, registration) registrations = LIST_HEAD_INITIALIZER(registrations);

static bool overlaps_locked(uintptr_t base, size_t bytes)
{
    const registration *other;
    LIST_FOREACH(other, &registrations, link)
        if (other->base < base + bytes && base < other->base + other->bytes) return true;
    return false;
}

weir_status wr_host_register(int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    void *memory;
    WR_TRY(wr_host_enter(WEIR_BACKEND_host_register, ordinal, &device));
    WR_TRY(wr_backend_check_pages("host: host_register", base, bytes));
    WR_TRY(wr_meta_alloc(sizeof(registration), "a registration", &memory));
    registration *made = memory;
    made->device = ordinal;
    made->base = (uintptr_t)base;
    made->bytes = bytes;

    wr_lock_acquire(&registrations_lock);
    bool taken = overlaps_locked(made->base, bytes);
    if (!taken) LIST_INSERT_HEAD(&registrations, made, link);
    wr_lock_release(&registrations_lock);
    if (!taken) return WEIR_OK;
    wr_meta_free(made);
    return wr_fail(WEIR_ERR_INVALID_ARGUMENT,
                   "host: host_register: some of the %zu bytes at %p are already registered; unregister them first",
                   bytes, base);
}

static weir_status withdraw_locked(const void *base, size_t bytes, registration **out)
{
    registration *found;
    LIST_FOREACH(found, &registrations, link)
        if (found->base == (uintptr_t)base) break;
    WR_ENSURE(found != NULL, WEIR_ERR_UNKNOWN_POINTER,
              "host: host_unregister: nothing is registered at %p, or it was already unregistered", base);
    WR_ENSURE(found->bytes == bytes, WEIR_ERR_INVALID_ARGUMENT,
              "host: host_unregister: %p was registered with %zu bytes, not %zu", base, found->bytes, bytes);
    LIST_REMOVE(found, link);
    *out = found;
    return WEIR_OK;
}

weir_status wr_host_unregister(int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    registration *found = NULL;
    WR_TRY(wr_host_enter(WEIR_BACKEND_host_unregister, ordinal, &device));
    wr_lock_acquire(&registrations_lock);
    weir_status status = withdraw_locked(base, bytes, &found);
    wr_lock_release(&registrations_lock);
    wr_meta_free(found);
    return status;
}

void wr_host_registrations_close(int device)
{
    registration *found, *next;
    wr_lock_acquire(&registrations_lock);
    for (found = LIST_FIRST(&registrations); found != NULL; found = next) {
        next = LIST_NEXT(found, link);
        if (found->device != device) continue;
        LIST_REMOVE(found, link);
        wr_meta_free(found);
    }
    wr_lock_release(&registrations_lock);
}

/* ---- weir/host.h ------------------------------------------------------------------------------------------------- */

static weir_status find_for_script(int ordinal, const char *call, wr_host_device **device)
{
    WR_TRY(wr_host_check_open(call));
    return wr_host_device_find(ordinal, device);
}

weir_status weir_host_place_segments(int ordinal, const weir_host_place *places, size_t count)
{
    wr_host_device *device;
    void *copy = NULL;
    WR_TRY(find_for_script(ordinal, "weir_host_place_segments", &device));
    WR_ENSURE(count == 0 || places != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_place_segments: places is NULL");
    for (size_t i = 0; i < count; i++) {
        WR_ENSURE(places[i].offset % device->memory.page == 0 && places[i].offset <= device->memory.bytes,
                  WEIR_ERR_INVALID_ARGUMENT,
                  "weir_host_place_segments: offset %" PRIu64 " of places[%zu] is not a multiple of %" PRIu64
                  " up to %" PRIu64,
                  places[i].offset, i, device->memory.page, device->memory.bytes);
    }
    if (count > 0) {
        WR_TRY(wr_meta_alloc(count * sizeof *places, "places of segments", &copy));
        memcpy(copy, places, count * sizeof *places);
    }

    wr_lock_acquire(&device->memory_lock);
    end_places(device);
    device->places = copy;
    device->place_count = count;
    wr_lock_release(&device->memory_lock);
    return WEIR_OK;
}

weir_status weir_host_address_range(int ordinal, uint64_t *bytes)
{
    wr_host_device *device;
    WR_TRY(find_for_script(ordinal, "weir_host_address_range", &device));
    WR_ENSURE(bytes != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_address_range: bytes is NULL");
    *bytes = device->memory.bytes;
    return WEIR_OK;
}
