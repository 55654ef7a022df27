#include "contract/contract.h"

static size_t granule;

/* Every test starts here: a back end without virtual memory is skipped. */
static void need_vm(void)
{
    if (b->vm_reserve == NULL || caps[0].granularity == 0) skip();
    granule = caps[0].granularity;
}

static char *reserve(size_t bytes)
{
    void *base;
    ok(b->vm_reserve(0, bytes, 0, &base));
    return base;
}

static weir_chunk create(size_t bytes)
{
    weir_chunk chunk;
    ok(b->vm_create(0, bytes, &chunk));
    return chunk;
}

static void map(char *base, weir_chunk chunk, size_t bytes)
{
    ok(b->vm_map(0, base, bytes, chunk));
    ok(b->vm_access(0, base, bytes, 0));
}

static void mapped_memory_keeps_its_contents(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(4 * granule);
    weir_chunk one = create(granule), two = create(granule);
    map(base + granule, one, granule);
    map(base + 2 * granule, two, granule);
    fill_now(0, base + granule, 0x31, granule);
    fill_now(0, base + 2 * granule, 0x32, granule);
    assert_int_equal(byte_at(0, base, granule), 0x31);
    assert_int_equal(byte_at(0, base, 2 * granule - 1), 0x31);
    assert_int_equal(byte_at(0, base, 2 * granule), 0x32);
    ok(b->vm_unmap(0, base + granule, granule));
    ok(b->vm_unmap(0, base + 2 * granule, granule));
    ok(b->vm_destroy(0, one, granule));
    ok(b->vm_destroy(0, two, granule));
    ok(b->vm_release(0, base, 4 * granule));
}

static void aliases_see_each_others_writes(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(2 * granule);
    weir_chunk chunk = create(granule);
    map(base, chunk, granule);
    map(base + granule, chunk, granule);
    fill_now(0, base, 0x41, granule);
    assert_int_equal(byte_at(0, base + granule, 77), 0x41);
    fill_now(0, base + granule, 0x42, granule);
    assert_int_equal(byte_at(0, base, 77), 0x42);
    ok(b->vm_unmap(0, base, granule));
    ok(b->vm_unmap(0, base + granule, granule));
    ok(b->vm_destroy(0, chunk, granule));
    ok(b->vm_release(0, base, 2 * granule));
}

static void contents_move_with_the_chunk(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(2 * granule);
    weir_chunk chunk = create(granule);
    map(base, chunk, granule);
    fill_now(0, base, 0x51, granule);
    ok(b->vm_unmap(0, base, granule));
    map(base + granule, chunk, granule);
    assert_int_equal(byte_at(0, base + granule, granule - 1), 0x51);
    ok(b->vm_unmap(0, base + granule, granule));
    ok(b->vm_destroy(0, chunk, granule));
    ok(b->vm_release(0, base, 2 * granule));
}

static void access_covers_several_maps_at_once(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(3 * granule);
    weir_chunk chunk[3];
    for (int i = 0; i < 3; i++) {
        chunk[i] = create(granule);
        ok(b->vm_map(0, base + (size_t)i * granule, granule, chunk[i]));
    }
    ok(b->vm_access(0, base, 3 * granule, 0));
    fill_now(0, base, 0x61, 3 * granule);
    assert_int_equal(byte_at(0, base, 3 * granule - 1), 0x61);
    for (int i = 0; i < 3; i++) {
        ok(b->vm_unmap(0, base + (size_t)i * granule, granule));
        ok(b->vm_destroy(0, chunk[i], granule));
    }
    ok(b->vm_release(0, base, 3 * granule));
}

/* Some maps follow the order in which the chunks were made; one of them was accessible before. */
static void one_access_shows_each_map_its_chunk(void **state)
{
    (void)state;
    need_vm();
    enum { CHUNKS = 5 };
    static const int order[CHUNKS] = { 1, 2, 3, 0, 4 };
    char *base = reserve(2 * CHUNKS * granule), *again = base + CHUNKS * granule;
    weir_chunk chunk[CHUNKS];
    for (int i = 0; i < CHUNKS; i++) {
        chunk[i] = create(granule);
        map(base + (size_t)i * granule, chunk[i], granule);
        fill_now(0, base + (size_t)i * granule, (unsigned char)(0x60 + i), granule);
    }
    for (int i = 0; i < CHUNKS; i++) ok(b->vm_map(0, again + (size_t)i * granule, granule, chunk[order[i]]));
    ok(b->vm_access(0, again + granule, granule, 0));
    ok(b->vm_access(0, again, CHUNKS * granule, 0));
    for (int i = 0; i < CHUNKS; i++) {
        char *place = again + (size_t)i * granule;
        assert_int_equal(byte_at(0, place, 0), 0x60 + order[i]);
        assert_int_equal(byte_at(0, place, granule - 1), 0x60 + order[i]);
        fill_now(0, place, (unsigned char)(0x70 + i), granule);
        assert_int_equal(byte_at(0, base + (size_t)order[i] * granule, 1), 0x70 + i);
    }
    for (int i = 0; i < 2 * CHUNKS; i++) ok(b->vm_unmap(0, base + (size_t)i * granule, granule));
    for (int i = 0; i < CHUNKS; i++) ok(b->vm_destroy(0, chunk[i], granule));
    ok(b->vm_release(0, base, 2 * CHUNKS * granule));
}

static void reservation_costs_no_memory(void **state)
{
    (void)state;
    need_vm();
    uint64_t before = free_memory(0);
    size_t bytes = caps[0].total_memory / granule * granule * 2;
    char *base = reserve(bytes);
    assert_int_equal(free_memory(0), before);
    ok(b->vm_release(0, base, bytes));
}

static void chunk_counts_until_destroyed(void **state)
{
    (void)state;
    need_vm();
    uint64_t before = free_memory(0);
    weir_chunk chunk = create(32 * granule);
    assert_true(free_memory(0) <= before - 32 * granule);
    ok(b->vm_destroy(0, chunk, 32 * granule));
    assert_int_equal(free_memory(0), before);
}

static void destroyed_chunk_counts_until_unmapped(void **state)
{
    (void)state;
    need_vm();
    uint64_t before = free_memory(0);
    char *base = reserve(granule);
    weir_chunk chunk = create(granule);
    map(base, chunk, granule);
    fill_now(0, base, 0x71, granule);
    ok(b->vm_destroy(0, chunk, granule));
    assert_true(free_memory(0) < before);
    assert_int_equal(byte_at(0, base, 5), 0x71);
    ok(b->vm_unmap(0, base, granule));
    assert_int_equal(free_memory(0), before);
    ok(b->vm_release(0, base, granule));
}

static void chunk_beyond_the_device_is_out_of_memory(void **state)
{
    (void)state;
    need_vm();
    weir_chunk chunk = 123;
    size_t bytes = (caps[0].total_memory / granule + 2) * granule;
    assert_int_equal(b->vm_create(0, bytes, &chunk), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(chunk, 123);
}

/* A new chunk of the same size takes the place of a destroyed one between two others. */
static void destroyed_chunk_leaves_no_trace(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(granule);
    weir_chunk chunk[3];
    for (int i = 0; i < 3; i++) chunk[i] = create(granule);
    map(base, chunk[1], granule);
    ok(b->vm_destroy(0, chunk[1], granule));
    ok(b->vm_unmap(0, base, granule));
    chunk[1] = create(granule);
    map(base, chunk[1], granule);
    fill_now(0, base, 0x29, granule);
    ok(b->vm_unmap(0, base, granule));
    for (int i = 0; i < 3; i++) ok(b->vm_destroy(0, chunk[i], granule));
    ok(b->vm_release(0, base, granule));
}

static void unaligned_sizes_are_refused(void **state)
{
    (void)state;
    need_vm();
    void *base = &base;
    weir_chunk chunk = 123;
    refused(b->vm_reserve(0, granule + 512, 0, &base));
    refused(b->vm_create(0, granule / 2, &chunk));
    assert_ptr_equal(base, &base);
    assert_int_equal(chunk, 123);
}

static void overlapping_map_is_refused(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(4 * granule);
    weir_chunk one = create(2 * granule), two = create(2 * granule);
    map(base, one, 2 * granule);
    fill_now(0, base, 0x11, 2 * granule);
    refused(b->vm_map(0, base + granule, 2 * granule, two));
    refused(b->vm_map(0, base, 2 * granule, two));
    assert_int_equal(byte_at(0, base, granule), 0x11);
    ok(b->vm_unmap(0, base, 2 * granule));
    ok(b->vm_destroy(0, one, 2 * granule));
    ok(b->vm_destroy(0, two, 2 * granule));
    ok(b->vm_release(0, base, 4 * granule));
}

static void map_outside_a_reservation_is_refused(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(2 * granule);
    ok(b->vm_release(0, base, 2 * granule));
    weir_chunk chunk = create(granule);
    refused(b->vm_map(0, base, granule, chunk));
    ok(b->vm_destroy(0, chunk, granule));
}

/* CUDA accepts the call, the host back end refuses it. Either way the reservation stays as it was. */
static void unmap_of_nothing_changes_nothing(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(2 * granule);
    (void)b->vm_unmap(0, base, granule);
    weir_chunk chunk = create(granule);
    ok(b->vm_map(0, base, granule, chunk));
    ok(b->vm_unmap(0, base, granule));
    ok(b->vm_destroy(0, chunk, granule));
    ok(b->vm_release(0, base, 2 * granule));
}

static void access_to_nothing_is_refused(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(2 * granule);
    refused(b->vm_access(0, base, granule, 0));
    ok(b->vm_release(0, base, 2 * granule));
}

static void released_addresses_can_be_reserved_again(void **state)
{
    (void)state;
    need_vm();
    for (int i = 0; i < 200; i++) {
        char *base = reserve(64 * granule);
        ok(b->vm_release(0, base, 64 * granule));
    }
}

static void segments_and_reservations_do_not_overlap(void **state)
{
    (void)state;
    need_vm();
    char *base = reserve(8 * granule);
    char *segment = new_segment(0, 2 * MIB);
    assert_true(segment + 2 * MIB <= base || base + 8 * granule <= segment);
    ok(b->segment_free(0, segment, 2 * MIB));
    ok(b->vm_release(0, base, 8 * granule));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mapped_memory_keeps_its_contents),
    cmocka_unit_test(aliases_see_each_others_writes),
    cmocka_unit_test(contents_move_with_the_chunk),
    cmocka_unit_test(access_covers_several_maps_at_once),
    cmocka_unit_test(one_access_shows_each_map_its_chunk),
    cmocka_unit_test(reservation_costs_no_memory),
    cmocka_unit_test(chunk_counts_until_destroyed),
    cmocka_unit_test(destroyed_chunk_counts_until_unmapped),
    cmocka_unit_test(destroyed_chunk_leaves_no_trace),
    cmocka_unit_test(chunk_beyond_the_device_is_out_of_memory),
    cmocka_unit_test(unaligned_sizes_are_refused),
    cmocka_unit_test(overlapping_map_is_refused),
    cmocka_unit_test(map_outside_a_reservation_is_refused),
    cmocka_unit_test(unmap_of_nothing_changes_nothing),
    cmocka_unit_test(access_to_nothing_is_refused),
    cmocka_unit_test(released_addresses_can_be_reserved_again),
    cmocka_unit_test(segments_and_reservations_do_not_overlap),
};

CONTRACT_MAIN(tests)
