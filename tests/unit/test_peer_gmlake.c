/* The cases of GMLake's search, in its order: exact match, one larger part, several parts, several parts and new
 * memory, new memory. */
#include "unit/peer_support.h"

static uint64_t created, mapped;

static void mark(void)
{
    created = f.driver.used;
    mapped = f.driver.calls;
}

static uint64_t grown(void)
{
    return f.driver.used - created;
}

static bool made_no_call(void)
{
    return f.driver.calls == mapped;
}

static void requests_are_in_handles_of_2_mib(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    peer_get(0, 2 * MIB + 1, 0);
    assert_int_equal(f.driver.used, 4 * MIB);
    peer_get(1, 512, 0);
    peer_get(2, MIB, 0);
    assert_int_equal(f.driver.used, 6 * MIB); /* small ones share 2 MiB */
    peer_close();
}

static void small_requests_end_below_2_mib(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    peer_get(0, 2 * MIB, 0);
    peer_give(0);
    mark();
    peer_get(0, 2 * MIB - 512, 0);
    assert_int_equal(grown(), 2 * MIB); /* the free part is for large ones */
    peer_close();
}

static void a_free_part_of_exactly_the_size_is_taken_whole(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    uint64_t first = peer_get(0, 100 * MIB, 0);
    peer_give(0);
    mark();
    assert_int_equal(peer_get(0, 100 * MIB, 0), first);
    assert_true(made_no_call());
    peer_close();
}

static void a_larger_part_is_split_and_its_size_is_remembered(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    uint64_t first = peer_get(0, 100 * MIB, 0);
    peer_give(0);
    mark();
    assert_int_equal(peer_get(0, 60 * MIB, 0), first);
    assert_int_equal(peer_get(1, 40 * MIB, 0), first + 60 * MIB);
    peer_give(0);
    peer_give(1);
    assert_int_equal(peer_get(0, 100 * MIB, 0), first); /* by the stitch of both */
    assert_true(made_no_call());
    peer_check();
    peer_close();
}

/* With so many idle blocks of 60 MiB; what is made from then on is counted. */
static void open_with_idle(const char *config, size_t count)
{
    peer_open(config, GIB);
    for (size_t i = 0; i < count; i++) peer_get(i, 60 * MIB, 0);
    for (size_t i = 0; i < count; i++) peer_give(i);
    mark();
}

static void parts_are_stitched_when_they_suffice_together(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB", 3);
    peer_get(0, 150 * MIB, 0);
    assert_int_equal(grown(), 0);
    peer_check();
    peer_get(1, 30 * MIB, 0); /* what was cut off the last */
    assert_int_equal(grown(), 0);
    peer_check();
    peer_close();
}

static void the_largest_parts_are_stitched(void **state)
{
    (void)state;
    peer_open("gmlake:fragment-limit=100MiB", GIB);
    const uint64_t smallest = peer_get(0, 20 * MIB, 0);
    peer_get(1, 60 * MIB, 0);
    peer_get(2, 60 * MIB, 0);
    for (size_t i = 0; i < 3; i++) peer_give(i);
    peer_get(0, 120 * MIB, 0);
    assert_int_equal(peer_get(1, 20 * MIB, 0), smallest);
    peer_close();
}

static void a_stitch_serves_again_without_mapping(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB", 2);
    uint64_t first = peer_get(0, 120 * MIB, 0);
    peer_give(0);
    mark();
    assert_int_equal(peer_get(0, 120 * MIB, 0), first);
    assert_true(made_no_call());
    peer_give(0);
    peer_get(0, 60 * MIB, 0); /* a part of it is in use now */
    assert_int_not_equal(peer_get(1, 120 * MIB, 0), first);
    peer_check();
    peer_close();
}

static void a_stitch_of_the_size_goes_before_a_larger_part(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB", 2);
    uint64_t first = peer_get(0, 120 * MIB, 0);
    peer_get(1, 200 * MIB, 0);
    peer_give(0);
    peer_give(1);
    assert_int_equal(peer_get(0, 120 * MIB, 0), first);
    peer_close();
}

static void only_the_bytes_that_parts_lack_are_created(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB", 1);
    peer_get(0, 160 * MIB, 0);
    assert_int_equal(grown(), 100 * MIB);
    peer_check();
    peer_close();
}

static void below_the_fragment_limit_nothing_is_stitched(void **state)
{
    (void)state;
    open_with_idle("gmlake", 3);
    peer_get(0, 120 * MIB, 0);
    assert_int_equal(grown(), 120 * MIB);
    peer_close();
}

static void from_the_fragment_limit_on_parts_are_stitched(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=120MiB", 2);
    peer_get(0, 120 * MIB, 0);
    assert_int_equal(grown(), 0);
    peer_close();
}

static void stitching_costs_a_mapping_per_handle(void **state)
{
    (void)state;
    const uint64_t reserve = peer_cost(WEIR_BACKEND_vm_reserve, 0);
    const uint64_t map = peer_cost(WEIR_BACKEND_vm_map, 2 * MIB), access = peer_cost(WEIR_BACKEND_vm_access, 2 * MIB);
    open_with_idle("gmlake:fragment-limit=100MiB", 2);
    uint64_t before = f.driver.nanoseconds;
    peer_get(0, 120 * MIB, 0);
    assert_int_equal(f.driver.nanoseconds - before, reserve + 60 * (map + access));
    peer_close();
}

static void no_more_stitches_are_kept_than_allowed(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB,stitches=1", 3);
    peer_get(0, 120 * MIB, 0);
    peer_give(0);
    peer_get(0, 180 * MIB, 0);
    peer_give(0);
    mark();
    peer_get(0, 180 * MIB, 0);
    assert_true(made_no_call());
    peer_give(0);
    peer_get(0, 120 * MIB, 0); /* its stitch is gone */
    assert_false(made_no_call());
    assert_int_equal(grown(), 0);
    peer_check();
    peer_close();
}

static void the_stitch_that_was_used_least_recently_goes(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB,stitches=3", 3);
    static const uint64_t sizes[] = { 120, 180, 120, 160 }; /* the last one cuts a part, which leaves another stitch */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        peer_get(0, sizes[i] * MIB, 0);
        peer_give(0);
    }
    mark();
    peer_get(0, 120 * MIB, 0);
    assert_true(made_no_call());
    peer_give(0);
    peer_get(0, 180 * MIB, 0);
    assert_false(made_no_call());
    peer_close();
}

static void one_streams_idle_memory_is_given_back(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    for (unsigned stream = 0; stream < 2; stream++) {
        peer_get(0, 20 * MIB, stream);
        peer_get(1, 512, stream);
        peer_give(0);
        peer_give(1);
    }
    f.choice.peer->empty_stream(f.self, 1);
    assert_int_equal(f.driver.used, 22 * MIB);
    peer_close();
}

static void a_part_that_is_given_back_takes_its_addresses_along(void **state)
{
    (void)state;
    peer_open("gmlake", GIB);
    peer_get(0, 2 * MIB, 0);
    peer_give(0);
    const uint64_t before = f.driver.nanoseconds;
    f.choice.peer->empty(f.self);
    const uint64_t handle = peer_cost(WEIR_BACKEND_vm_unmap, 2 * MIB) + peer_cost(WEIR_BACKEND_vm_destroy, 2 * MIB);
    assert_int_equal(f.driver.nanoseconds - before, handle + peer_cost(WEIR_BACKEND_vm_release, 0));
    peer_close();
}

static void a_stitch_that_goes_is_unmapped_and_takes_its_addresses_along(void **state)
{
    (void)state;
    open_with_idle("gmlake:fragment-limit=100MiB,stitches=0", 2);
    peer_get(0, 120 * MIB, 0);
    peer_give(0);
    const uint64_t before = f.driver.nanoseconds;
    peer_get(0, 60 * MIB, 0); /* no stitch is kept that no block uses */
    const uint64_t unmap = peer_cost(WEIR_BACKEND_vm_unmap, 2 * MIB);
    assert_int_equal(f.driver.nanoseconds - before, 60 * unmap + peer_cost(WEIR_BACKEND_vm_release, 0));
    peer_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_in_handles_of_2_mib),
        cmocka_unit_test(small_requests_end_below_2_mib),
        cmocka_unit_test(a_free_part_of_exactly_the_size_is_taken_whole),
        cmocka_unit_test(a_larger_part_is_split_and_its_size_is_remembered),
        cmocka_unit_test(parts_are_stitched_when_they_suffice_together),
        cmocka_unit_test(the_largest_parts_are_stitched),
        cmocka_unit_test(a_stitch_serves_again_without_mapping),
        cmocka_unit_test(a_stitch_of_the_size_goes_before_a_larger_part),
        cmocka_unit_test(only_the_bytes_that_parts_lack_are_created),
        cmocka_unit_test(below_the_fragment_limit_nothing_is_stitched),
        cmocka_unit_test(from_the_fragment_limit_on_parts_are_stitched),
        cmocka_unit_test(stitching_costs_a_mapping_per_handle),
        cmocka_unit_test(no_more_stitches_are_kept_than_allowed),
        cmocka_unit_test(the_stitch_that_was_used_least_recently_goes),
        cmocka_unit_test(one_streams_idle_memory_is_given_back),
        cmocka_unit_test(a_part_that_is_given_back_takes_its_addresses_along),
        cmocka_unit_test(a_stitch_that_goes_is_unmapped_and_takes_its_addresses_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
