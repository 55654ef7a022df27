/*
 * Virtual memory. A chunk is a range of the device's memory file, or a file of its own if other processes may get it; a
 * reservation is a range of the device's addresses. Mapping a chunk into a reservation is mmap(MAP_SHARED), so that
 * aliases see each other's writes. The mmap is done when access is given: until then the addresses cannot be touched
 * anyway, and so one system call is enough.
 */
#include "backend/host/host_internal.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/unsignalled.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A handle is the chunk's place in the file, in granules, and a number that no other chunk of the process has, so that
 * stale handles are recognised. */
#define HANDLE_PLACE_BITS 24
#define FILE_BYTES (WR_HOST_GRANULARITY << HANDLE_PLACE_BITS)

static atomic_uint_fast64_t next_chunk = 1;

static weir_status check_multiple(const char *call, const char *what, uint64_t number)
{
    WR_ENSURE(number % WR_HOST_GRANULARITY == 0, WEIR_ERR_INVALID_ARGUMENT,
              "host: %s: %s %#" PRIx64 " is not a multiple of the granularity of %" PRIu64 " bytes", call, what, number,
              WR_HOST_GRANULARITY);
    return WEIR_OK;
}

static weir_status check_range(const char *call, const void *base, size_t bytes)
{
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "host: %s: 0 bytes requested", call);
    WR_TRY(check_multiple(call, "size", bytes));
    return check_multiple(call, "address", (uintptr_t)base);
}

static weir_status fail_descriptor(const char *call)
{
    int error = errno;
    return wr_fail_native(WEIR_ERR_OUT_OF_HOST_MEMORY, "host", error,
                          "host: %s: no more file descriptors: %s; close some or raise the limit (ulimit -n)", call,
                          strerror(error));
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Fixes the size of a shared file: a process that maps a file risks a SIGBUS if others can change its size. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int set_size(int file, uint64_t bytes)
{
    wr_unsignalled u;
    wr_unsignalled_begin(&u);
    const int failed = ftruncate(file, (off_t)bytes);
    wr_unsignalled_end(&u, failed ? errno : 0);
    return failed;
}

static const char *remedy(int error)
{
    switch (error) {
    case EFBIG: return "; raise the limit on the size of files (ulimit -f)";
    case EMFILE: return "; close some files or raise the limit on their number (ulimit -n)";
    case ENOSYS:
    case EPERM: return "; allow memfd_create() here, or use plain segments (WEIR_POLICY=segments)";
    default: return "";
    }
}

static weir_status make_file(uint64_t bytes, int *out)
{
    int file = wr_descriptor_moved(memfd_create("weir-host-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (file < 0 || set_size(file, bytes) != 0 || fcntl(file, F_ADD_SEALS, SEALS) != 0) {
        int error = errno;
        if (file >= 0) close(file);
        return wr_fail_native(WEIR_ERR_OUT_OF_HOST_MEMORY, "host", error,
                              "host: cannot make the file behind virtual memory (memfd_create, ftruncate): %s%s",
                              strerror(error), remedy(error));
    }
    *out = file;
    return WEIR_OK;
}

/* Memory without contents is never mapped, so its file stays empty, which no limit on the size of files refuses. */
static weir_status open_file(wr_host_device *device)
{
    int file = -1;
    WR_TRY(make_file(device->memory.hollow ? 0 : FILE_BYTES, &file));
    weir_status status = wr_host_space_init(&device->chunks, FILE_BYTES);
    if (status == WEIR_OK)
        device->file = file;
    else
        close(file);
    return status;
}

/* A chunk with a file of its own takes a place in the device's file all the same, for its handle; the place stays
 * empty. */
static weir_status take_chunk(wr_host_device *device, uint64_t bytes, wr_host_range **out)
{
    wr_host_range *chunk;
    WR_TRY(wr_host_space_take(&device->chunks, bytes, WR_HOST_GRANULARITY, &chunk));
    WR_ENSURE(chunk != NULL, WEIR_ERR_OUT_OF_MEMORY,
              "host: no contiguous %" PRIu64 " bytes are free in the file behind virtual memory; create smaller chunks",
              bytes);
    chunk->use = WR_HOST_CHUNK;
    chunk->handle = atomic_fetch_add(&next_chunk, 1) << HANDLE_PLACE_BITS | chunk->base / WR_HOST_GRANULARITY;
    chunk->map_count = 0;
    chunk->destroyed = false;
    *out = chunk;
    return WEIR_OK;
}

static weir_status add_chunk_locked(wr_host_device *device, uint64_t bytes, uint64_t charged, wr_host_range **out)
{
    if (device->file < 0) WR_TRY(open_file(device));
    WR_TRY(wr_host_charge(device, charged));
    weir_status status = take_chunk(device, bytes, out);
    if (status != WEIR_OK) device->used -= charged;
    return status;
}

/* `file` is the chunk's own or -1; this takes it over, whatever it returns. An imported chunk counts against the device
 * of the process that made it. */
static weir_status add_chunk(wr_host_device *device, enum weir_backend_entry entry, uint64_t bytes, int file,
                             weir_chunk *handle)
{
    wr_host_range *chunk;
    uint64_t charged = entry == WEIR_BACKEND_vm_import ? 0 : bytes;
    wr_lock_acquire(&device->memory_lock);
    weir_status status = add_chunk_locked(device, bytes, charged, &chunk);
    if (status == WEIR_OK) {
        chunk->charged = charged;
        chunk->file = file;
        *handle = chunk->handle;
        wr_host_spend(entry, bytes);
    } else if (file >= 0) {
        close(file);
    }
    wr_lock_release(&device->memory_lock);
    return status;
}

static weir_status enter_create(enum weir_backend_entry entry, int ordinal, size_t bytes, const weir_chunk *chunk,
                                wr_host_device **device)
{
    WR_TRY(wr_host_enter(entry, ordinal, device));
    WR_ENSURE(chunk != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: %s: chunk is NULL", wr_host_entry_name(entry));
    return check_range(wr_host_entry_name(entry), NULL, bytes);
}

weir_status wr_host_vm_create(int ordinal, size_t bytes, weir_chunk *chunk)
{
    wr_host_device *device;
    WR_TRY(enter_create(WEIR_BACKEND_vm_create, ordinal, bytes, chunk, &device));
    return add_chunk(device, WEIR_BACKEND_vm_create, bytes, -1, chunk);
}

weir_status wr_host_vm_create_exportable(int ordinal, size_t bytes, weir_chunk *chunk)
{
    wr_host_device *device;
    int file = -1;
    WR_TRY(enter_create(WEIR_BACKEND_vm_create_exportable, ordinal, bytes, chunk, &device));
    WR_TRY(make_file(bytes, &file));
    return add_chunk(device, WEIR_BACKEND_vm_create_exportable, bytes, file, chunk);
}

/* Some systems (vm.memfd_noexec) also keep every such file from being made executable. */
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

/* A descriptor that was opened anew for reading gives no access to write. */
static bool comes_from_export(int descriptor)
{
    const int seals = fcntl(descriptor, F_GET_SEALS), flags = fcntl(descriptor, F_GETFL);
    return seals >= 0 && (seals & ~F_SEAL_EXEC) == SEALS && flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

weir_status wr_host_vm_import(int ordinal, int descriptor, size_t bytes, weir_chunk *chunk)
{
    wr_host_device *device;
    struct stat about;
    WR_TRY(enter_create(WEIR_BACKEND_vm_import, ordinal, bytes, chunk, &device));
    WR_ENSURE(comes_from_export(descriptor) && fstat(descriptor, &about) == 0, WEIR_ERR_INVALID_ARGUMENT,
              "host: vm_import: descriptor %d does not come from vm_export", descriptor);
    WR_ENSURE((uint64_t)about.st_size == bytes, WEIR_ERR_INVALID_ARGUMENT,
              "host: vm_import: the chunk behind descriptor %d has %jd bytes, not %zu", descriptor,
              (intmax_t)about.st_size, bytes);
    int file = fcntl(descriptor, F_DUPFD_CLOEXEC, WR_DESCRIPTOR_LEAST);
    if (file < 0) return fail_descriptor("vm_import");
    return add_chunk(device, WEIR_BACKEND_vm_import, bytes, file, chunk);
}

static weir_status find_handle(const wr_host_device *device, weir_chunk handle, const char *call, wr_host_range **out)
{
    uint64_t place = (handle & (((uint64_t)1 << HANDLE_PLACE_BITS) - 1)) * WR_HOST_GRANULARITY;
    wr_host_range *chunk = device->file >= 0 ? wr_host_space_find(&device->chunks, place) : NULL;
    WR_ENSURE(chunk != NULL && chunk->handle == handle && !chunk->destroyed, WEIR_ERR_INVALID_ARGUMENT,
              "host: %s: %#" PRIx64 " is not a chunk of this device, or was destroyed", call, handle);
    *out = chunk;
    return WEIR_OK;
}

static weir_status find_chunk(const wr_host_device *device, weir_chunk handle, uint64_t bytes, const char *call,
                              weir_status size_status, wr_host_range **out)
{
    wr_host_range *chunk = NULL;
    WR_TRY(find_handle(device, handle, call, &chunk));
    WR_ENSURE(chunk->bytes == bytes, size_status,
              "host: %s: chunk %#" PRIx64 " has %" PRIu64 " bytes, not %" PRIu64
              "; only whole chunks can be mapped and destroyed",
              call, handle, chunk->bytes, bytes);
    *out = chunk;
    return WEIR_OK;
}

static weir_status export_locked(const wr_host_device *device, weir_chunk handle, int *descriptor)
{
    wr_host_range *chunk = NULL;
    WR_TRY(find_handle(device, handle, "vm_export", &chunk));
    WR_ENSURE(chunk->file >= 0, WEIR_ERR_NOT_SUPPORTED,
              "host: vm_export: chunk %#" PRIx64
              " was created by vm_create; create it by vm_create_exportable, or allocate "
              "from a memory pool of WEIR_MEMORY_EXPORTABLE",
              handle);
    int copy = fcntl(chunk->file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return fail_descriptor("vm_export");
    *descriptor = copy;
    return WEIR_OK;
}

weir_status wr_host_vm_export(int ordinal, weir_chunk handle, int *descriptor)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_export, ordinal, &device));
    WR_ENSURE(descriptor != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: vm_export: descriptor is NULL");
    wr_lock_acquire(&device->memory_lock);
    weir_status status = export_locked(device, handle, descriptor);
    wr_lock_release(&device->memory_lock);
    return status;
}

/* Gives the memory back once the chunk is destroyed and mapped nowhere. */
static void release_if_unused(wr_host_device *device, wr_host_range *chunk)
{
    if (!chunk->destroyed || chunk->map_count > 0) return;
    if (chunk->file >= 0)
        close(chunk->file);
    else if (!device->memory.hollow && fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                 (off_t)chunk->base, (off_t)chunk->bytes))
        wr_log(WR_LOG_WARN, "host: the memory of a destroyed chunk stays in use until close: %s", strerror(errno));
    device->used -= chunk->charged;
    wr_host_space_give(&device->chunks, chunk);
}

weir_status wr_host_vm_destroy(int ordinal, weir_chunk handle, size_t bytes)
{
    wr_host_device *device;
    wr_host_range *chunk;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_destroy, ordinal, &device));
    wr_lock_acquire(&device->memory_lock);
    weir_status status = find_chunk(device, handle, bytes, "vm_destroy", WEIR_ERR_INVALID_ARGUMENT, &chunk);
    if (status == WEIR_OK) {
        chunk->destroyed = true;
        release_if_unused(device, chunk);
        wr_host_spend(WEIR_BACKEND_vm_destroy, bytes);
    }
    wr_lock_release(&device->memory_lock);
    return status;
}

/* ---- reservations ------------------------------------------------------------------------------------------------ */

static weir_status take_addresses(wr_host_device *device, uint64_t bytes, uint64_t hint, wr_host_range **range)
{
    uint64_t offset = hint - (uintptr_t)device->memory.start;
    *range = NULL;
    if (hint != 0 && hint % WR_HOST_GRANULARITY == 0)
        WR_TRY(wr_host_space_take_at(&device->memory.space, offset, bytes, range));
    if (*range == NULL) WR_TRY(wr_host_space_take(&device->memory.space, bytes, WR_HOST_GRANULARITY, range));
    WR_ENSURE(*range != NULL, WEIR_ERR_OUT_OF_MEMORY,
              "host: no contiguous %" PRIu64 " bytes are free in the device's %" PRIu64 " bytes of address space",
              bytes, device->memory.bytes);
    return WEIR_OK;
}

weir_status wr_host_vm_reserve(int ordinal, size_t bytes, uint64_t hint, void **base)
{
    wr_host_device *device;
    wr_host_range *range;
    void *maps;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_reserve, ordinal, &device));
    WR_ENSURE(base != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: vm_reserve: base is NULL");
    WR_TRY(check_range("vm_reserve", NULL, bytes));
    WR_TRY(wr_meta_alloc(sizeof(wr_host_space), "a reservation's maps", &maps));
    weir_status status = wr_host_space_init(maps, bytes);
    if (status != WEIR_OK) goto fail;

    wr_lock_acquire(&device->memory_lock);
    status = take_addresses(device, bytes, hint, &range);
    if (status == WEIR_OK) {
        range->use = WR_HOST_RESERVATION;
        range->maps = maps;
        *base = device->memory.start + range->base;
    }
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) return WEIR_OK;

    wr_host_space_clear(maps);
fail:
    wr_meta_free(maps);
    return status;
}

/* The reservation that holds [base, base + bytes), and how far into it that is. */
static weir_status find_reservation(const wr_host_device *device, const void *base, uint64_t bytes, const char *call,
                                    wr_host_range **out, uint64_t *distance)
{
    uint64_t offset = (uint64_t)((uintptr_t)base - (uintptr_t)device->memory.start);
    wr_host_range *range = wr_host_space_around(&device->memory.space, offset);
    WR_ENSURE(range != NULL && range->use == WR_HOST_RESERVATION && range->bytes - (offset - range->base) >= bytes,
              WEIR_ERR_INVALID_ARGUMENT, "host: %s: %" PRIu64 " bytes at %p are not inside one reservation", call,
              bytes, base);
    *distance = offset - range->base;
    *out = range;
    return WEIR_OK;
}

static weir_status vm_release_locked(wr_host_device *device, void *base, uint64_t bytes)
{
    wr_host_range *reservation;
    uint64_t distance;
    WR_TRY(find_reservation(device, base, WR_HOST_GRANULARITY, "vm_release", &reservation, &distance));
    WR_ENSURE(distance == 0 && reservation->bytes == bytes, WEIR_ERR_INVALID_ARGUMENT,
              "host: vm_release: %p is in a reservation of %" PRIu64
              " bytes at %p, which can only be released as a whole",
              base, reservation->bytes, (void *)(device->memory.start + reservation->base));
    WR_ENSURE(wr_host_space_empty(reservation->maps), WEIR_ERR_BUSY,
              "host: vm_release: chunks are mapped in the reservation at %p; unmap them first", base);
    wr_host_space_clear(reservation->maps);
    wr_meta_free(reservation->maps);
    wr_host_space_give(&device->memory.space, reservation);
    return WEIR_OK;
}

weir_status wr_host_vm_release(int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_release, ordinal, &device));
    WR_TRY(check_range("vm_release", base, bytes));
    wr_lock_acquire(&device->memory_lock);
    weir_status status = vm_release_locked(device, base, bytes);
    wr_lock_release(&device->memory_lock);
    return status;
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

static weir_status vm_map_locked(wr_host_device *device, void *base, uint64_t bytes, weir_chunk handle)
{
    wr_host_range *reservation, *chunk, *map;
    uint64_t distance;
    WR_TRY(find_chunk(device, handle, bytes, "vm_map", WEIR_ERR_NOT_SUPPORTED, &chunk));
    WR_TRY(find_reservation(device, base, bytes, "vm_map", &reservation, &distance));
    WR_TRY(wr_host_space_take_at(reservation->maps, distance, bytes, &map));
    WR_ENSURE(map != NULL, WEIR_ERR_BUSY,
              "host: vm_map: something is already mapped in the %" PRIu64 " bytes at %p; unmap it first", bytes, base);

    map->use = WR_HOST_MAP;
    map->chunk = chunk;
    map->accessible = false;
    chunk->map_count++;
    return WEIR_OK;
}

weir_status wr_host_vm_map(int ordinal, void *base, size_t bytes, weir_chunk handle)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_map, ordinal, &device));
    WR_TRY(check_range("vm_map", base, bytes));
    wr_lock_acquire(&device->memory_lock);
    weir_status status = vm_map_locked(device, base, bytes, handle);
    wr_lock_release(&device->memory_lock);
    if (status == WEIR_OK) wr_host_spend(WEIR_BACKEND_vm_map, bytes);
    return status;
}

/* The first of the maps that fill [base, base + bytes) without a gap and without reaching beyond it. */
static weir_status find_maps(const wr_host_device *device, const void *base, uint64_t bytes, const char *call,
                             wr_host_range **reservation, wr_host_range **first)
{
    uint64_t distance;
    WR_TRY(find_reservation(device, base, bytes, call, reservation, &distance));
    wr_host_range *map = wr_host_space_find((*reservation)->maps, distance);
    uint64_t place = distance;
    *first = map;
    while (map != NULL && map->base == place && place < distance + bytes) {
        place += map->bytes;
        map = wr_host_space_next(map);
    }
    WR_ENSURE(place == distance + bytes, WEIR_ERR_INVALID_ARGUMENT,
              "host: %s: %" PRIu64 " bytes at %p are not one or more whole mappings", call, bytes, base);
    return WEIR_OK;
}

static weir_status vm_unmap_locked(wr_host_device *device, void *base, uint64_t bytes)
{
    wr_host_range *reservation, *map;
    WR_TRY(find_maps(device, base, bytes, "vm_unmap", &reservation, &map));
    WR_TRY(wr_host_decommit(&device->memory, base, bytes));
    for (uint64_t left = bytes; left > 0;) {
        wr_host_range *next = wr_host_space_next(map);
        left -= map->bytes;
        wr_host_spend(WEIR_BACKEND_vm_unmap, map->bytes);
        map->chunk->map_count--;
        release_if_unused(device, map->chunk);
        wr_host_space_give(reservation->maps, map);
        map = next;
    }
    return WEIR_OK;
}

weir_status wr_host_vm_unmap(int ordinal, void *base, size_t bytes)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_unmap, ordinal, &device));
    WR_TRY(check_range("vm_unmap", base, bytes));
    wr_lock_acquire(&device->memory_lock);
    weir_status status = vm_unmap_locked(device, base, bytes);
    wr_lock_release(&device->memory_lock);
    return status;
}

/* The file with a map's memory, and where in it. */
static int file_of(const wr_host_device *device, const wr_host_range *map, uint64_t *at)
{
    const bool own = map->chunk->file >= 0;
    *at = own ? 0 : map->chunk->base;
    return own ? map->chunk->file : device->file;
}

/* The bytes of the maps from this one on that have no access yet and lie in one file, contiguous there as in the
 * addresses. */
static uint64_t bytes_together(const wr_host_device *device, wr_host_range *map, uint64_t most)
{
    uint64_t from, at, bytes = 0;
    const int file = file_of(device, map, &from);
    do {
        bytes += map->bytes;
        map = wr_host_space_next(map);
    } while (bytes < most && !map->accessible && file_of(device, map, &at) == file && at == from + bytes);
    return bytes;
}

/* Maps the memory of the map, and of those that can be mapped with it; *bytes is how much that was. */
static weir_status give_access(const wr_host_device *device, char *base, wr_host_range *map, uint64_t most,
                               uint64_t *bytes)
{
    const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    uint64_t at;
    const int file = file_of(device, map, &at);
    *bytes = bytes_together(device, map, most);
    if (device->memory.hollow) return WEIR_OK;
    return mmap(base, *bytes, PROT_READ | PROT_WRITE, flags, file, (off_t)at) == MAP_FAILED
               ? wr_host_fail_mapping("vm_access: mmap", base, *bytes)
               : WEIR_OK;
}

/* There is one page table for all devices, so access for one is access for all. Giving access again changes nothing,
 * since the memory may be in use. */
static weir_status vm_access_locked(const wr_host_device *device, char *base, uint64_t bytes)
{
    wr_host_range *reservation, *map;
    WR_TRY(find_maps(device, base, bytes, "vm_access", &reservation, &map));
    for (char *end = base + bytes; base < end;) {
        uint64_t together = map->bytes;
        if (!map->accessible) WR_TRY(give_access(device, base, map, (uint64_t)(end - base), &together));
        for (base += together; together > 0; map = wr_host_space_next(map)) {
            map->accessible = true;
            wr_host_spend(WEIR_BACKEND_vm_access, map->bytes);
            together -= map->bytes;
        }
    }
    return WEIR_OK;
}

weir_status wr_host_vm_access(int ordinal, void *base, size_t bytes, int accessor)
{
    wr_host_device *device, *other;
    WR_TRY(wr_host_enter(WEIR_BACKEND_vm_access, ordinal, &device));
    WR_TRY(check_range("vm_access", base, bytes));
    WR_TRY(wr_host_device_find(accessor, &other));
    WR_ENSURE(!atomic_load(&other->lost), WEIR_ERR_DEVICE_LOST, "host: vm_access: device %d is lost", accessor);
    wr_lock_acquire(&device->memory_lock);
    weir_status status = vm_access_locked(device, base, bytes);
    wr_lock_release(&device->memory_lock);
    return status;
}

void wr_host_vm_close(wr_host_device *device)
{
    wr_host_range *range = wr_host_space_first(&device->memory.space);
    for (; range != NULL; range = wr_host_space_next(range)) {
        if (range->use != WR_HOST_RESERVATION) continue;
        wr_host_space_clear(range->maps);
        wr_meta_free(range->maps);
        range->maps = NULL;
    }
    if (device->file < 0) return;
    for (range = wr_host_space_first(&device->chunks); range != NULL; range = wr_host_space_next(range))
        if (range->file >= 0) close(range->file);
    close(device->file);
    device->file = -1;
    wr_host_space_clear(&device->chunks);
}
