/* Each node keeps the largest vacant range of its subtree, which makes first fit logarithmic. The macro must be defined
 * before tree.h is included. */
#define RB_AUGMENT(range) refresh(range)
#include "backend/host/space.h"

#include "base/meta.h"
#include "base/size.h"

#include <assert.h>

static int by_base(const wr_host_range *left, const wr_host_range *right)
{
    return (left->base > right->base) - (left->base < right->base);
}

static uint64_t largest_of(const wr_host_range *range)
{
    return range != NULL ? range->largest : 0;
}

static void refresh(wr_host_range *range)
{
    uint64_t left = largest_of(RB_LEFT(range, links));
    uint64_t right = largest_of(RB_RIGHT(range, links));
    uint64_t below = left > right ? left : right;
    range->largest = below > range->bytes ? below : range->bytes;
}

/* Not the header's macro for static functions, which uses __unused: glibc does not have that. */
RB_GENERATE_INTERNAL(wr_host_tree, wr_host_range, links, by_base, __attribute__((unused)) static)

/* tree.h refreshes the nodes that it rotates; refreshing the path up to the root is left to its user. */
static void refresh_upwards(wr_host_range *range)
{
    for (; range != NULL; range = RB_PARENT(range, links)) refresh(range);
}

static void insert(struct wr_host_tree *tree, wr_host_range *range)
{
    range->largest = range->bytes;
    wr_host_range *same = RB_INSERT(wr_host_tree, tree, range);
    assert(same == NULL);
    (void)same;
    refresh_upwards(range);
}

static void withdraw(struct wr_host_tree *tree, wr_host_range *range)
{
    wr_host_range *parent = RB_PARENT(range, links);
    RB_REMOVE(wr_host_tree, tree, range);
    refresh_upwards(parent);
}

/* The last range that starts at or before `place`. */
static wr_host_range *at_or_before(const struct wr_host_tree *tree, uint64_t place)
{
    wr_host_range *found = NULL;
    wr_host_range *range = RB_ROOT(tree);
    while (range != NULL) {
        if (range->base <= place) found = range;
        range = range->base <= place ? RB_RIGHT(range, links) : RB_LEFT(range, links);
    }
    return found;
}

static weir_status new_range(uint64_t base, uint64_t bytes, wr_host_range **out)
{
    void *memory;
    WR_TRY(wr_meta_alloc(sizeof(wr_host_range), "a range of the host back end", &memory));
    wr_host_range *range = memory;
    range->base = base;
    range->bytes = bytes;
    *out = range;
    return WEIR_OK;
}

weir_status wr_host_space_init(wr_host_space *space, uint64_t bytes)
{
    wr_host_range *all;
    WR_TRY(new_range(0, bytes, &all));
    RB_INIT(&space->vacant);
    RB_INIT(&space->taken);
    insert(&space->vacant, all);
    return WEIR_OK;
}

static void clear_tree(struct wr_host_tree *tree)
{
    wr_host_range *range;
    while ((range = RB_ROOT(tree)) != NULL) {
        RB_REMOVE(wr_host_tree, tree, range);
        wr_meta_free(range);
    }
}

void wr_host_space_clear(wr_host_space *space)
{
    clear_tree(&space->vacant);
    clear_tree(&space->taken);
}

static bool fits(const wr_host_range *range, uint64_t bytes, uint64_t alignment)
{
    uint64_t skipped = wr_round_up(range->base, alignment) - range->base;
    return range->bytes >= skipped && range->bytes - skipped >= bytes;
}

/* Recurses as deep as the tree. */
static wr_host_range *first_fit(wr_host_range *range, uint64_t bytes, uint64_t alignment)
{
    if (range == NULL || range->largest < bytes) return NULL;
    wr_host_range *left = first_fit(RB_LEFT(range, links), bytes, alignment);
    if (left != NULL) return left;
    if (fits(range, bytes, alignment)) return range;
    return first_fit(RB_RIGHT(range, links), bytes, alignment);
}

/* Cuts [base, base + bytes) out of `hole`, which remains as the rest before it, or else the rest after it. */
static weir_status carve(wr_host_space *space, wr_host_range *hole, uint64_t base, uint64_t bytes, wr_host_range **out)
{
    uint64_t end = base + bytes, hole_end = hole->base + hole->bytes;
    wr_host_range *range = hole, *tail = NULL;

    if (bytes < hole->bytes) WR_TRY(new_range(base, bytes, &range));
    if (base > hole->base && end < hole_end) {
        weir_status status = new_range(end, hole_end - end, &tail);
        if (status != WEIR_OK) {
            wr_meta_free(range);
            return status;
        }
    }

    if (range == hole) {
        withdraw(&space->vacant, hole);
    } else {
        if (base > hole->base) {
            hole->bytes = base - hole->base;
        } else {
            hole->base = end; /* moves up within its own old place, so the order stays */
            hole->bytes = hole_end - end;
        }
        refresh_upwards(hole);
        if (tail != NULL) insert(&space->vacant, tail);
    }
    insert(&space->taken, range);
    *out = range;
    return WEIR_OK;
}

weir_status wr_host_space_take(wr_host_space *space, uint64_t bytes, uint64_t alignment, wr_host_range **range)
{
    wr_host_range *hole = first_fit(RB_ROOT(&space->vacant), bytes, alignment);
    if (hole != NULL) return carve(space, hole, wr_round_up(hole->base, alignment), bytes, range);
    *range = NULL;
    return WEIR_OK;
}

weir_status wr_host_space_take_at(wr_host_space *space, uint64_t base, uint64_t bytes, wr_host_range **range)
{
    wr_host_range *hole = at_or_before(&space->vacant, base);
    if (hole != NULL && base - hole->base < hole->bytes && hole->bytes - (base - hole->base) >= bytes)
        return carve(space, hole, base, bytes, range);
    *range = NULL;
    return WEIR_OK;
}

void wr_host_space_give(wr_host_space *space, wr_host_range *range)
{
    withdraw(&space->taken, range);
    wr_host_range *before = at_or_before(&space->vacant, range->base);
    wr_host_range *after =
        before != NULL ? RB_NEXT(wr_host_tree, &space->vacant, before) : RB_MIN(wr_host_tree, &space->vacant);

    if (after != NULL && after->base == range->base + range->bytes) {
        range->bytes += after->bytes;
        withdraw(&space->vacant, after);
        wr_meta_free(after);
    }
    if (before != NULL && before->base + before->bytes == range->base) {
        before->bytes += range->bytes;
        refresh_upwards(before);
        wr_meta_free(range);
        return;
    }
    insert(&space->vacant, range);
}

wr_host_range *wr_host_space_find(const wr_host_space *space, uint64_t base)
{
    wr_host_range *range = at_or_before(&space->taken, base);
    return range != NULL && range->base == base ? range : NULL;
}

wr_host_range *wr_host_space_around(const wr_host_space *space, uint64_t place)
{
    wr_host_range *range = at_or_before(&space->taken, place);
    return range != NULL && place - range->base < range->bytes ? range : NULL;
}

wr_host_range *wr_host_space_next(wr_host_range *range)
{
    return RB_NEXT(wr_host_tree, NULL, range);
}

bool wr_host_space_empty(const wr_host_space *space)
{
    return RB_EMPTY(&space->taken);
}

wr_host_range *wr_host_space_first(wr_host_space *space)
{
    return RB_MIN(wr_host_tree, &space->taken);
}
