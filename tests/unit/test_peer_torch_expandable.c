/* The rules are those of PyTorch's expandable segments; tests/cli/policies.sh compares with recorded peaks. */
#include "unit/peer_support.h"

static uint64_t used(void)
{
    return f.driver.used;
}

static void small_requests_map_pages_of_2_mib_and_large_ones_of_20(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    peer_get(0, 1, 0);
    assert_int_equal(used(), 2 * MIB);
    peer_get(1, MIB, 0);
    assert_int_equal(used(), 2 * MIB);
    peer_get(2, MIB + 1, 0);
    assert_int_equal(used(), 22 * MIB);
    peer_get(3, 30 * MIB, 0);
    assert_int_equal(used(), 42 * MIB); /* 1 MiB, 512 B and 30 MiB in two pages */
    peer_close();
}

static void a_range_grows_by_what_its_free_end_lacks(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 15 * MIB, 0);
    assert_int_equal(peer_get(1, 25 * MIB, 0), first + 15 * MIB);
    assert_int_equal(used(), 40 * MIB);
    peer_give(1);
    assert_int_equal(peer_get(1, 45 * MIB, 0), first + 15 * MIB);
    assert_int_equal(used(), 60 * MIB);
    peer_close();
}

static void a_range_has_addresses_for_all_of_the_device(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 300 * MIB, 0);
    assert_int_equal(peer_get(1, 700 * MIB, 0), first + 300 * MIB);
    peer_close();
}

static void a_range_has_an_eighth_more_addresses_than_the_device_has_memory(void **state)
{
    (void)state;
    peer_open("torch-expandable", 1000 * MIB);
    uint64_t first = peer_get(0, 100 * MIB, 0);
    peer_get(1, 880 * MIB, 0);
    peer_give(0);
    assert_int_equal(peer_get(0, 120 * MIB, 0), first + 980 * MIB); /* the first 100 MiB are not enough */
    assert_int_equal(used(), 1000 * MIB);
    peer_close();
}

static void a_hole_is_preferred_to_the_end_that_can_grow(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 30 * MIB, 0);
    peer_get(1, 2 * MIB, 0); /* 8 MiB of the second page are left */
    peer_give(0);
    assert_int_equal(peer_get(0, 4 * MIB, 0), first);
    assert_int_equal(peer_get(2, 26 * MIB, 0), first + 4 * MIB);
    assert_int_equal(peer_get(3, 4 * MIB, 0), first + 32 * MIB);
    assert_int_equal(used(), 40 * MIB);
    peer_close();
}

static void idle_memory_of_private_pools_stays_until_they_are_emptied(void **state)
{
    (void)state;
    peer_open("torch-expandable", 200 * MIB);
    f.choice.peer->keep_stream(f.self, 1);
    peer_get(0, 100 * MIB, 1);
    peer_give(0);
    peer_get(1, 40 * MIB, 0);
    peer_give(1);
    f.choice.peer->empty(f.self);
    assert_int_equal(used(), 100 * MIB);
    assert_false(peer_take(2, 120 * MIB, 0));
    assert_int_equal(used(), 100 * MIB);
    f.choice.peer->empty_stream(f.self, 1);
    peer_get(2, 120 * MIB, 0);
    peer_close();
}

static void what_max_split_keeps_whole_serves_only_what_it_nearly_fits(void **state)
{
    (void)state;
    peer_open("torch-expandable:max-split=64MiB", GIB);
    const uint64_t first = peer_get(0, 100 * MIB, 0);
    peer_get(1, 20 * MIB, 0);
    peer_give(0);
    assert_int_equal(peer_get(2, 30 * MIB, 0), first + 120 * MIB); /* smaller ones get none of it */
    assert_int_equal(peer_get(3, 70 * MIB, 0), first + 150 * MIB); /* nor do those that leave 20 MiB */
    assert_int_equal(peer_get(4, 90 * MIB, 0), first);
    peer_close();
}

static void streams_share_nothing(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    peer_get(0, 20 * MIB, 0);
    peer_give(0);
    peer_get(0, 20 * MIB, 1);
    assert_int_equal(used(), 40 * MIB);
    peer_close();
}

static void one_streams_idle_memory_is_given_back(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    for (unsigned stream = 0; stream < 2; stream++) {
        peer_get(2 * stream, 20 * MIB, stream);
        peer_get(2 * stream + 1, MIB, stream);
        peer_give(2 * stream);
    }
    f.choice.peer->empty_stream(f.self, 1);
    assert_int_equal(used(), 24 * MIB);
    f.choice.peer->empty_stream(f.self, 7); /* has nothing */
    assert_int_equal(used(), 24 * MIB);
    peer_close();
}

static void whole_free_pages_are_given_back_when_memory_is_short(void **state)
{
    (void)state;
    peer_open("torch-expandable", 100 * MIB);
    peer_get(0, 30 * MIB, 0);
    peer_get(1, 5 * MIB, 0);
    peer_get(2, 25 * MIB, 0);
    peer_give(0);
    peer_get(3, 60 * MIB, 1); /* 40 MiB are left: the first page goes, the second is partly in use */
    assert_int_equal(used(), 100 * MIB);
    peer_check();
    assert_int_equal(peer_get(0, 10 * MIB, 0), f.held[1].at.address - 10 * MIB);
    peer_close();
}

static void giving_pages_back_waits_for_the_device(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    peer_get(0, 20 * MIB, 0);
    peer_give(0);
    const uint64_t before = f.driver.nanoseconds;
    f.choice.peer->empty(f.self);
    const uint64_t page = peer_cost(WEIR_BACKEND_vm_unmap, 20 * MIB) + peer_cost(WEIR_BACKEND_vm_destroy, 20 * MIB);
    const uint64_t range = peer_cost(WEIR_BACKEND_vm_release, 0);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_stream_synchronize, 0) + page + range);
    peer_close();
}

static void giving_pages_back_takes_two_calls_for_each(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    peer_get(0, 60 * MIB, 0);
    peer_give(0);
    const uint64_t before = f.driver.calls;
    f.choice.peer->empty(f.self);
    assert_int_equal(f.driver.calls - before, 1 + 2 * 3 + 1); /* a wait before, the range's addresses after */
    peer_close();
}

static void pages_that_were_given_back_are_mapped_again_where_they_were(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 60 * MIB, 0);
    peer_get(1, 5 * MIB, 0);
    peer_give(0);
    f.choice.peer->empty(f.self);
    assert_int_equal(used(), 20 * MIB);
    assert_int_equal(peer_get(0, 25 * MIB, 0), first);
    assert_int_equal(used(), 60 * MIB);
    peer_close();
}

static void pages_are_mapped_at_the_lowest_place_with_room(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 60 * MIB, 0);
    peer_get(1, 20 * MIB, 0);
    peer_get(2, 40 * MIB, 0);
    peer_get(3, 20 * MIB, 0);
    peer_give(0);
    peer_give(2);
    f.choice.peer->empty(f.self);
    assert_int_equal(peer_get(0, 40 * MIB, 0), first); /* not where it would fit exactly */
    peer_close();
}

static void mapping_costs_per_handle(void **state)
{
    (void)state;
    const uint64_t reserve = peer_cost(WEIR_BACKEND_vm_reserve, 0),
                   create = peer_cost(WEIR_BACKEND_vm_create, 20 * MIB);
    const uint64_t map = peer_cost(WEIR_BACKEND_vm_map, 20 * MIB), access = peer_cost(WEIR_BACKEND_vm_access, 20 * MIB);
    peer_open("torch-expandable", GIB);
    peer_get(0, 60 * MIB, 0);
    assert_int_equal(f.driver.nanoseconds, reserve + 3 * (create + map + access));
    assert_int_equal(f.driver.calls, 1 + 3 + 3 + 1);
    peer_close();
}

static void handles_made_before_one_is_refused_are_paid_for(void **state)
{
    (void)state;
    const uint64_t create = peer_cost(WEIR_BACKEND_vm_create, 20 * MIB);
    const uint64_t both = create + peer_cost(WEIR_BACKEND_vm_destroy, 20 * MIB);
    peer_open("torch-expandable", 50 * MIB);
    assert_false(peer_take(0, 60 * MIB, 0)); /* two are there; tried again once the cache is empty */
    assert_int_equal(f.driver.nanoseconds, peer_cost(WEIR_BACKEND_vm_reserve, 0) + 2 * 2 * both);
    assert_int_equal(f.driver.calls, 1 + 2 * (3 + 2));
    peer_close();
}

static void a_block_that_another_stream_uses_costs_an_event_and_queries(void **state)
{
    (void)state;
    peer_open("torch-expandable", GIB);
    uint64_t first = peer_get(0, 4 * MIB, 0), calls = f.driver.calls;
    f.choice.peer->begin_use(f.self, &f.held[0].at, 0);
    f.held[0].later = true;
    assert_int_equal(f.driver.calls, calls + 1);
    assert_int_not_equal(peer_get(1, 4 * MIB, 0), first);
    assert_int_equal(f.driver.calls, calls + 2);
    peer_give(0);
    assert_int_equal(peer_get(0, 4 * MIB, 0), first);
    assert_int_equal(f.driver.calls, calls + 2);
    peer_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_requests_map_pages_of_2_mib_and_large_ones_of_20),
        cmocka_unit_test(a_range_grows_by_what_its_free_end_lacks),
        cmocka_unit_test(a_range_has_addresses_for_all_of_the_device),
        cmocka_unit_test(a_range_has_an_eighth_more_addresses_than_the_device_has_memory),
        cmocka_unit_test(a_hole_is_preferred_to_the_end_that_can_grow),
        cmocka_unit_test(idle_memory_of_private_pools_stays_until_they_are_emptied),
        cmocka_unit_test(what_max_split_keeps_whole_serves_only_what_it_nearly_fits),
        cmocka_unit_test(streams_share_nothing),
        cmocka_unit_test(one_streams_idle_memory_is_given_back),
        cmocka_unit_test(whole_free_pages_are_given_back_when_memory_is_short),
        cmocka_unit_test(giving_pages_back_waits_for_the_device),
        cmocka_unit_test(giving_pages_back_takes_two_calls_for_each),
        cmocka_unit_test(pages_that_were_given_back_are_mapped_again_where_they_were),
        cmocka_unit_test(pages_are_mapped_at_the_lowest_place_with_room),
        cmocka_unit_test(mapping_costs_per_handle),
        cmocka_unit_test(handles_made_before_one_is_refused_are_paid_for),
        cmocka_unit_test(a_block_that_another_stream_uses_costs_an_event_and_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
