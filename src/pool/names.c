#include "pool/names.h"

#include "base/lock.h"
#include "base/meta.h"
#include "pool/mempool.h"

/* Ids come in leaves of numbers that follow each other. A leaf is found at its place, its first number modulo the
 * places, as long as one of its ids is in use or still to be given; then it serves other numbers. A leaf's memory stays
 * until close, since who finds an id takes no lock and may come late: it sees another first number then. */
#define LEAF_BITS 10
#define PLACE_BITS 14
#define LEAF_ENTRIES ((uint64_t)1 << LEAF_BITS)
#define PLACES ((size_t)1 << PLACE_BITS)

typedef _Atomic(wr_mempool *) entry; /* NULL: not given yet, or gone */

typedef struct leaf {
    atomic_uint_fast64_t first; /* number */
    uint64_t left;              /* ids in use or to be given */
    struct leaf *next;          /* of the unused ones */
    entry pool[LEAF_ENTRIES];
} leaf;

typedef _Atomic(leaf *) place;

typedef struct directory {
    uint64_t given; /* the last number; the first is 1 */
    place places[PLACES];
} directory;

static wr_lock lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "names of pools");
static directory of_users, of_captures;
static leaf *unused;
static wr_mempool none_yet; /* stands for an id that has no pool yet */

static directory *directory_of(wr_mempool_name name)
{
    return name & 1 ? &of_captures : &of_users;
}

static uint64_t first_of(uint64_t number)
{
    return number & ~(LEAF_ENTRIES - 1);
}

static place *place_of(directory *d, uint64_t number)
{
    return &d->places[number >> LEAF_BITS & (PLACES - 1)];
}

static entry *entry_in(leaf *l, uint64_t number)
{
    return &l->pool[number & (LEAF_ENTRIES - 1)];
}

bool wr_mempool_names_at_rest(void)
{
    return wr_lock_is_free(&lock);
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */

/* The next number whose place is free, or has its leaf; 0: there is none. */
static uint64_t next_number_locked(directory *d)
{
    uint64_t number = d->given + 1;
    for (size_t i = 0; i < PLACES; i++) {
        const leaf *l = atomic_load_explicit(place_of(d, number), memory_order_relaxed);
        if (!l || atomic_load_explicit(&l->first, memory_order_relaxed) == first_of(number)) return number;
        number = first_of(number) + LEAF_ENTRIES;
    }
    return 0;
}

static weir_status make_leaf_locked(place *where, uint64_t number)
{
    leaf *l = unused;
    if (l) {
        unused = l->next;
    } else {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof *l, "ids of memory pools", &made));
        l = made;
    }
    l->left = LEAF_ENTRIES - (number - first_of(number));
    atomic_store_explicit(&l->first, first_of(number), memory_order_relaxed);
    atomic_store_explicit(where, l, memory_order_release);
    return WEIR_OK;
}

static weir_status give_locked(directory *d, uint64_t *out)
{
    const uint64_t number = next_number_locked(d);
    WR_ENSURE(number, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "too many memory pools: each group of %llu ids, of %llu groups, has one that is in use; release pools",
              (unsigned long long)LEAF_ENTRIES, (unsigned long long)PLACES);
    place *where = place_of(d, number);
    if (!atomic_load_explicit(where, memory_order_relaxed)) WR_TRY(make_leaf_locked(where, number));
    leaf *l = atomic_load_explicit(where, memory_order_relaxed);
    /* Whoever sees it sees the leaf's first number, too. */
    atomic_store_explicit(entry_in(l, number), &none_yet, memory_order_release);
    d->given = number;
    *out = number;
    return WEIR_OK;
}

weir_status wr_mempool_name_new(bool of_user, wr_mempool_name *out)
{
    uint64_t number = 0;
    wr_lock_acquire(&lock);
    const weir_status status = give_locked(of_user ? &of_users : &of_captures, &number);
    wr_lock_release(&lock);
    if (status == WEIR_OK) *out = number << 1 | !of_user;
    return status;
}

/* ---- what they stand for ----------------------------------------------------------------------------------------- */

static leaf *leaf_locked(wr_mempool_name name)
{
    leaf *l = atomic_load_explicit(place_of(directory_of(name), name >> 1), memory_order_relaxed);
    return l && atomic_load_explicit(&l->first, memory_order_relaxed) == first_of(name >> 1) ? l : NULL;
}

weir_status wr_mempool_name_claim(wr_mempool_name name, wr_mempool *pool)
{
    wr_lock_acquire(&lock);
    leaf *l = leaf_locked(name);
    entry *e = l ? entry_in(l, name >> 1) : NULL;
    const bool mine = e && atomic_load_explicit(e, memory_order_relaxed) == &none_yet;
    if (mine) atomic_store_explicit(e, pool, memory_order_release);
    wr_lock_release(&lock);
    WR_ENSURE(mine, WEIR_ERR_BUSY, "memory pool " WR_MEMPOOL_FORMAT " was created meanwhile by another capture",
              WR_MEMPOOL_ARGUMENTS(name));
    return WEIR_OK;
}

void wr_mempool_name_disclaim(wr_mempool_name name)
{
    wr_lock_acquire(&lock);
    leaf *l = leaf_locked(name);
    if (l) atomic_store_explicit(entry_in(l, name >> 1), &none_yet, memory_order_release);
    wr_lock_release(&lock);
}

static void end_locked(leaf *l, wr_mempool_name name)
{
    atomic_store_explicit(entry_in(l, name >> 1), NULL, memory_order_release);
    if (--l->left != 0) return;
    atomic_store_explicit(place_of(directory_of(name), name >> 1), NULL, memory_order_relaxed);
    l->next = unused;
    unused = l;
}

void wr_mempool_name_end(wr_mempool_name name)
{
    wr_lock_acquire(&lock);
    leaf *l = leaf_locked(name);
    if (l && atomic_load_explicit(entry_in(l, name >> 1), memory_order_relaxed)) end_locked(l, name);
    wr_lock_release(&lock);
}

bool wr_mempool_name_return(wr_mempool_name name)
{
    wr_lock_acquire(&lock);
    leaf *l = leaf_locked(name);
    const bool free = l && atomic_load_explicit(entry_in(l, name >> 1), memory_order_relaxed) == &none_yet;
    if (free) end_locked(l, name);
    wr_lock_release(&lock);
    return free;
}

weir_status wr_mempool_find(weir_mempool id, wr_mempool_name *name, wr_mempool **out)
{
    const wr_mempool_name n = wr_mempool_name_from(id);
    const uint64_t number = n >> 1;
    wr_mempool *pool = NULL;
    leaf *l = atomic_load_explicit(place_of(directory_of(n), number), memory_order_acquire);
    if (l) pool = atomic_load_explicit(entry_in(l, number), memory_order_acquire);
    /* Read after the entry: it was written before. */
    if (pool && atomic_load_explicit(&l->first, memory_order_relaxed) != first_of(number)) pool = NULL;
    WR_ENSURE(pool, WEIR_ERR_POOL_MISMATCH, "memory pool {%llu, %llu} does not exist: it is gone, or never existed",
              (unsigned long long)id.capture, (unsigned long long)id.user);
    *out = pool == &none_yet ? NULL : pool;
    *name = n;
    return WEIR_OK;
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static void release_all(directory *d)
{
    for (size_t i = 0; i < PLACES; i++) wr_meta_free(atomic_exchange(&d->places[i], NULL));
}

void wr_mempool_names_release(void)
{
    wr_lock_acquire(&lock);
    release_all(&of_users);
    release_all(&of_captures);
    while (unused) {
        leaf *l = unused;
        unused = l->next;
        wr_meta_free(l);
    }
    wr_lock_release(&lock);
}
