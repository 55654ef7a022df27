#include "replay/peers/driver.h"

#include "grow.h"

#include <assert.h>
#include <stdlib.h>

#define ADDRESS_ALIGN (UINT64_C(2) << 20)

static int by_address(const driver_map *left, const driver_map *right)
{
    return (left->address > right->address) - (left->address < right->address);
}

/* The header's macro for static functions says __unused, which glibc does not have. */
RB_GENERATE_INTERNAL(driver_maps, driver_map, link, by_address, __attribute__((unused)) static)

void driver_init(driver *d, uint64_t limit)
{
    *d = (driver){ .limit = limit, .next_address = ADDRESS_ALIGN, .maps = RB_INITIALIZER(&d->maps) };
}

void driver_release(driver *d)
{
    driver_map *m;
    while ((m = RB_ROOT(&d->maps))) {
        RB_REMOVE(driver_maps, &d->maps, m);
        free(m);
    }
}

static void count(driver *d, enum weir_backend_entry entry, uint64_t calls, uint64_t handles, uint64_t bytes)
{
    uint64_t each = 0;
    weir_status status = weir_host_cost(entry, bytes, &each);
    assert(status == WEIR_OK);
    (void)status;
    d->calls += calls;
    d->nanoseconds += handles * each;
}

void driver_call(driver *d, enum weir_backend_entry entry)
{
    count(d, entry, 1, 1, 0);
}

void driver_spend(driver *d, uint64_t nanoseconds)
{
    d->calls++;
    d->nanoseconds += nanoseconds;
}

static bool take(driver *d, uint64_t bytes, uint64_t *physical)
{
    if (bytes > d->limit - d->used) return false;
    d->used += bytes;
    if (d->used > d->peak) d->peak = d->used;
    *physical = d->next_physical;
    d->next_physical += bytes;
    return true;
}

static bool is_refused(driver *d)
{
    void (*refuse)(void *) = d->refuse;
    d->refuse = NULL;
    if (refuse) refuse(d->user);
    return refuse != NULL;
}

static uint64_t new_addresses(driver *d, uint64_t bytes)
{
    uint64_t address = d->next_address;
    d->next_address += (bytes + 2 * ADDRESS_ALIGN - 1) / ADDRESS_ALIGN * ADDRESS_ALIGN;
    return address;
}

static void add_map(driver *d, uint64_t address, uint64_t bytes, uint64_t handle, uint64_t physical)
{
    driver_map *m = grow_new(1, sizeof *m);
    *m = (driver_map){ .address = address, .bytes = bytes, .handle = handle, .physical = physical };
    const driver_map *same = RB_INSERT(driver_maps, &d->maps, m);
    assert(!same);
    (void)same;
}

static void drop_map(driver *d, driver_map *m)
{
    RB_REMOVE(driver_maps, &d->maps, m);
    free(m);
}

/* The map that contains the address; NULL: none. */
static driver_map *find(const driver *d, uint64_t address)
{
    driver_map *found = NULL, *m = RB_ROOT(&d->maps);
    while (m) {
        if (m->address <= address) found = m;
        m = m->address <= address ? RB_RIGHT(m, link) : RB_LEFT(m, link);
    }
    return found && address - found->address < found->bytes ? found : NULL;
}

const driver_map *driver_find(const driver *d, uint64_t address)
{
    return find(d, address);
}

bool driver_alloc(driver *d, uint64_t bytes, uint64_t *address)
{
    uint64_t physical;
    if (!take(d, bytes, &physical)) {
        count(d, WEIR_BACKEND_segment_alloc, 1, 0, 0); /* a failed call, whose cost was not measured */
        return false;
    }
    count(d, WEIR_BACKEND_segment_alloc, 1, 1, bytes);
    *address = new_addresses(d, bytes);
    add_map(d, *address, bytes, bytes, physical);
    return true;
}

void driver_free(driver *d, uint64_t address, uint64_t bytes)
{
    driver_map *m = find(d, address);
    assert(m && m->address == address && m->bytes == bytes);
    drop_map(d, m);
    d->used -= bytes;
    count(d, WEIR_BACKEND_segment_free, 1, 1, bytes);
}

uint64_t driver_reserve(driver *d, uint64_t bytes)
{
    driver_call(d, WEIR_BACKEND_vm_reserve);
    return new_addresses(d, bytes);
}

void driver_unreserve(driver *d)
{
    driver_call(d, WEIR_BACKEND_vm_release);
}

bool driver_create(driver *d, uint64_t bytes, uint64_t handle, uint64_t *physical)
{
    assert(bytes % handle == 0);
    if (is_refused(d)) {
        count(d, WEIR_BACKEND_vm_create, 1, 0, handle);
        return false;
    }
    uint64_t vacant = d->limit - d->used, made = bytes / handle;
    if (take(d, bytes, physical)) {
        count(d, WEIR_BACKEND_vm_create, made, made, handle);
        return true;
    }
    made = vacant / handle; /* handles made before the one that fails are destroyed again */
    count(d, WEIR_BACKEND_vm_create, made + 1, made, handle);
    count(d, WEIR_BACKEND_vm_destroy, made, made, handle);
    return false;
}

void driver_destroy(driver *d, uint64_t bytes, uint64_t handle)
{
    assert(bytes % handle == 0 && bytes <= d->used);
    d->used -= bytes;
    count(d, WEIR_BACKEND_vm_destroy, bytes / handle, bytes / handle, handle);
}

void driver_map_at(driver *d, uint64_t address, uint64_t bytes, uint64_t handle, uint64_t physical)
{
    assert(bytes % handle == 0);
    add_map(d, address, bytes, handle, physical);
    count(d, WEIR_BACKEND_vm_map, bytes / handle, bytes / handle, handle);
}

void driver_access(driver *d, uint64_t bytes, uint64_t handle)
{
    count(d, WEIR_BACKEND_vm_access, 1, bytes / handle, handle);
}

/* Splits the map at `address` if that lies inside it. */
static void cut_at(driver *d, uint64_t address)
{
    driver_map *m = find(d, address);
    if (!m || m->address == address) return;
    uint64_t front = address - m->address;
    assert(front % m->handle == 0);
    add_map(d, address, m->bytes - front, m->handle, m->physical + front);
    m->bytes = front;
}

void driver_unmap(driver *d, uint64_t address, uint64_t bytes)
{
    cut_at(d, address);
    cut_at(d, address + bytes);
    for (uint64_t end = address + bytes; address < end;) {
        driver_map *m = find(d, address);
        assert(m && m->address == address && m->bytes % m->handle == 0);
        count(d, WEIR_BACKEND_vm_unmap, m->bytes / m->handle, m->bytes / m->handle, m->handle);
        address += m->bytes;
        drop_map(d, m);
    }
}
