#include "contract/contract.h"

static void contents_survive_until_freed(void **state)
{
    (void)state;
    char *one = new_segment(0, 2 * MIB);
    fill_now(0, one, 0x11, 2 * MIB);
    char *two = new_segment(0, 20 * MIB);
    fill_now(0, two, 0x22, 20 * MIB);
    assert_int_equal(byte_at(0, one, 0), 0x11);
    assert_int_equal(byte_at(0, one, 2 * MIB - 1), 0x11);
    assert_int_equal(byte_at(0, two, 0), 0x22);
    assert_int_equal(byte_at(0, two, 20 * MIB - 1), 0x22);
    ok(b->segment_free(0, one, 2 * MIB));
    assert_int_equal(byte_at(0, two, 0), 0x22);
    ok(b->segment_free(0, two, 20 * MIB));
}

static void segments_do_not_overlap(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    uintptr_t base[COUNT];
    for (int i = 0; i < COUNT; i++) base[i] = (uintptr_t)new_segment(0, 2 * MIB);
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < i; j++) assert_true(base[i] + 2 * MIB <= base[j] || base[j] + 2 * MIB <= base[i]);
    for (int i = 0; i < COUNT; i++) ok(b->segment_free(0, (void *)base[i], 2 * MIB));
}

static void segments_are_aligned(void **state)
{
    (void)state;
    void *odd = new_segment(0, 1000);
    void *even = new_segment(0, 2 * MIB);
    assert_int_equal((uintptr_t)odd % 512, 0);
    assert_int_equal((uintptr_t)even % (2 * MIB), 0);
    ok(b->segment_free(0, odd, 1000));
    ok(b->segment_free(0, even, 2 * MIB));
}

static void exceeding_the_device_is_out_of_memory(void **state)
{
    (void)state;
    void *base = &base;
    assert_int_equal(b->segment_alloc(0, caps[0].total_memory + 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(b->segment_alloc(0, (size_t)1 << 60, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(base, &base);
}

static void out_of_memory_is_recoverable(void **state)
{
    (void)state;
    size_t half = free_memory(0) / 2 / (2 * MIB) * (2 * MIB);
    void *first = new_segment(0, half), *second;
    assert_int_equal(b->segment_alloc(0, half + 64 * MIB, &second), WEIR_ERR_OUT_OF_MEMORY);
    ok(b->segment_free(0, first, half));
    ok(b->segment_alloc(0, half + 64 * MIB, &second));
    ok(b->segment_free(0, second, half + 64 * MIB));
}

static void free_returns_capacity(void **state)
{
    (void)state;
    uint64_t before = free_memory(0);
    void *base = new_segment(0, 64 * MIB);
    assert_true(free_memory(0) <= before - 64 * MIB);
    ok(b->segment_free(0, base, 64 * MIB));
    assert_int_equal(free_memory(0), before);
}

static void unknown_free_is_refused(void **state)
{
    (void)state;
    int on_the_stack;
    uint64_t before = free_memory(0);
    refused(b->segment_free(0, &on_the_stack, 2 * MIB));
    assert_int_equal(free_memory(0), before);
}

static void zero_bytes_are_refused(void **state)
{
    (void)state;
    void *base = &base;
    refused(b->segment_alloc(0, 0, &base));
    refused(b->pinned_alloc(0, 0, &base));
    assert_ptr_equal(base, &base);
}

static void pinned_memory_is_plain_memory(void **state)
{
    (void)state;
    void *base;
    ok(b->pinned_alloc(0, 3 * MIB, &base));
    memset(base, 0x5a, 3 * MIB);
    assert_int_equal(((unsigned char *)base)[3 * MIB - 1], 0x5a);
    ok(b->pinned_free(0, base, 3 * MIB));
}

static void pinned_memory_does_not_count_against_the_device(void **state)
{
    (void)state;
    uint64_t before = free_memory(0);
    void *base;
    ok(b->pinned_alloc(0, 16 * MIB, &base));
    assert_int_equal(free_memory(0), before);
    ok(b->pinned_free(0, base, 16 * MIB));
}

static void unknown_pinned_free_is_refused(void **state)
{
    (void)state;
    int on_the_stack;
    refused(b->pinned_free(0, &on_the_stack, 4096));
}

static void copies_go_between_all_kinds(void **state)
{
    (void)state;
    static unsigned char plain[4096];
    unsigned char *pinned;
    void *memory;
    char *device_memory = new_segment(0, 2 * MIB), *other = new_segment(0, 2 * MIB);
    ok(b->pinned_alloc(0, sizeof plain, &memory));
    pinned = memory;
    for (size_t i = 0; i < sizeof plain; i++) plain[i] = (unsigned char)(i * 7);

    ok(b->copy(0, NULL, device_memory, plain, sizeof plain));
    ok(b->copy(0, NULL, other + 512, device_memory, sizeof plain));
    ok(b->copy(0, NULL, pinned, other + 512, sizeof plain));
    ok(b->stream_synchronize(0, NULL));
    assert_memory_equal(pinned, plain, sizeof plain);

    ok(b->pinned_free(0, pinned, sizeof plain));
    ok(b->segment_free(0, device_memory, 2 * MIB));
    ok(b->segment_free(0, other, 2 * MIB));
}

static void fill_stays_within_its_bytes(void **state)
{
    (void)state;
    char *memory = new_segment(0, 2 * MIB);
    fill_now(0, memory, 1, 4096);
    fill_now(0, memory + 100, 2, 1000);
    assert_int_equal(byte_at(0, memory, 99), 1);
    assert_int_equal(byte_at(0, memory, 100), 2);
    assert_int_equal(byte_at(0, memory, 1099), 2);
    assert_int_equal(byte_at(0, memory, 1100), 1);
    ok(b->segment_free(0, memory, 2 * MIB));
}

/* ---- registered memory ------------------------------------------------------------------------------------------- */

#define PAGES (16 * (size_t)sysconf(_SC_PAGESIZE))

static char *new_pages(void)
{
    if (b->host_register == NULL) skip();
    void *pages = aligned_alloc((size_t)sysconf(_SC_PAGESIZE), PAGES);
    assert_non_null(pages);
    return pages;
}

static void copies_go_to_and_from_registered_memory(void **state)
{
    (void)state;
    char *pages = new_pages(), *memory = new_segment(0, 2 * MIB);
    memset(pages, 0x3c, PAGES);
    ok(b->host_register(0, pages, PAGES));
    ok(b->copy(0, NULL, memory, pages, PAGES));
    ok(b->fill(0, NULL, memory, 0x4d, 1));
    ok(b->copy(0, NULL, pages, memory, PAGES));
    ok(b->stream_synchronize(0, NULL));
    assert_int_equal(pages[0], 0x4d);
    assert_int_equal(pages[1], 0x3c);
    assert_int_equal(pages[PAGES - 1], 0x3c);
    ok(b->host_unregister(0, pages, PAGES));
    ok(b->segment_free(0, memory, 2 * MIB));
    free(pages);
}

static void registered_memory_is_reached_by_the_device(void **state)
{
    (void)state;
    char *pages = new_pages();
    ok(b->host_register(0, pages, PAGES));
    for (int i = 0; i < devices; i++) {
        fill_now(i, pages, (unsigned char)(0x51 + i), PAGES);
        assert_int_equal(pages[PAGES - 1], 0x51 + i);
    }
    ok(b->host_unregister(0, pages, PAGES));
    free(pages);
}

static void registered_memory_can_be_registered_again_later(void **state)
{
    (void)state;
    char *pages = new_pages();
    for (int i = 0; i < 3; i++) {
        ok(b->host_register(0, pages, PAGES));
        ok(b->host_unregister(0, pages, PAGES));
    }
    free(pages);
}

static void memory_is_registered_once(void **state)
{
    (void)state;
    char *pages = new_pages();
    ok(b->host_register(0, pages, PAGES));
    assert_int_equal(b->host_register(0, pages, PAGES), WEIR_ERR_INVALID_ARGUMENT);
    refused(b->host_register(0, pages + PAGES / 2, PAGES / 2));
    refused(b->host_register(devices - 1, pages, PAGES));
    ok(b->host_unregister(0, pages, PAGES));
    refused(b->host_unregister(0, pages, PAGES));
    free(pages);
}

static void neighbours_are_registered_apart(void **state)
{
    (void)state;
    char *pages = new_pages();
    ok(b->host_register(0, pages, PAGES / 2));
    ok(b->host_register(0, pages + PAGES / 2, PAGES / 2));
    ok(b->host_unregister(0, pages, PAGES / 2));
    refused(b->host_unregister(0, pages, PAGES / 2));
    ok(b->host_unregister(0, pages + PAGES / 2, PAGES / 2));
    free(pages);
}

static void parts_of_pages_are_not_registered(void **state)
{
    (void)state;
    char *pages = new_pages();
    assert_int_equal(b->host_register(0, pages + 512, PAGES / 2), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(0, pages, 1000), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(0, pages, 0), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(0, NULL, PAGES), WEIR_ERR_INVALID_ARGUMENT);
    refused(b->host_unregister(0, pages, PAGES));
    free(pages);
}

/* ---- managed memory ---------------------------------------------------------------------------------------------- */

/* Skips devices without managed memory whose driver has the call. */
static char *new_managed(size_t bytes)
{
    void *base = NULL;
    if (b->managed_alloc == NULL) skip();
    weir_status status = b->managed_alloc(0, bytes, &base);
    if (status == WEIR_ERR_NOT_SUPPORTED) skip();
    ok(status);
    return base;
}

static void managed_memory_is_reached_by_host_and_device(void **state)
{
    (void)state;
    char *managed = new_managed(4 * MIB), *memory = new_segment(0, 4 * MIB);
    memset(managed, 0x17, 4 * MIB);
    ok(b->copy(0, NULL, memory, managed, 4 * MIB));
    ok(b->stream_synchronize(0, NULL));
    assert_int_equal(byte_at(0, memory, 4 * MIB - 1), 0x17);
    fill_now(0, managed, 0x28, 4 * MIB);
    assert_int_equal(managed[0], 0x28);
    assert_int_equal(managed[4 * MIB - 1], 0x28);
    ok(b->managed_free(0, managed, 4 * MIB));
    ok(b->segment_free(0, memory, 4 * MIB));
}

static void managed_memory_is_aligned_as_segments_are(void **state)
{
    (void)state;
    char *odd = new_managed(1000), *even = new_managed(2 * MIB);
    assert_int_equal((uintptr_t)odd % 512, 0);
    assert_int_equal((uintptr_t)even % (2 * MIB), 0);
    ok(b->managed_free(0, odd, 1000));
    ok(b->managed_free(0, even, 2 * MIB));
}

static void managed_memory_is_given_back(void **state)
{
    (void)state;
    char *first = new_managed(2 * MIB); /* memory that the driver takes for itself at the first call does not count */
    fill_now(0, first, 1, 2 * MIB);
    ok(b->managed_free(0, first, 2 * MIB));
    uint64_t before = free_memory(0);
    for (int i = 0; i < 4; i++) {
        char *managed = new_managed(64 * MIB);
        fill_now(0, managed, 1, 64 * MIB);
        ok(b->managed_free(0, managed, 64 * MIB));
    }
    assert_true(free_memory(0) + 64 * MIB > before);
}

static void wrong_managed_calls_are_refused(void **state)
{
    (void)state;
    void *base = &base;
    if (b->managed_alloc == NULL) skip();
    refused(b->managed_alloc(0, 0, &base));
    refused(b->managed_free(0, &base, 2 * MIB));
    assert_ptr_equal(base, &base);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(contents_survive_until_freed),
    cmocka_unit_test(segments_do_not_overlap),
    cmocka_unit_test(segments_are_aligned),
    cmocka_unit_test(exceeding_the_device_is_out_of_memory),
    cmocka_unit_test(out_of_memory_is_recoverable),
    cmocka_unit_test(free_returns_capacity),
    cmocka_unit_test(unknown_free_is_refused),
    cmocka_unit_test(zero_bytes_are_refused),
    cmocka_unit_test(pinned_memory_is_plain_memory),
    cmocka_unit_test(pinned_memory_does_not_count_against_the_device),
    cmocka_unit_test(unknown_pinned_free_is_refused),
    cmocka_unit_test(copies_go_between_all_kinds),
    cmocka_unit_test(fill_stays_within_its_bytes),
    cmocka_unit_test(copies_go_to_and_from_registered_memory),
    cmocka_unit_test(registered_memory_is_reached_by_the_device),
    cmocka_unit_test(registered_memory_can_be_registered_again_later),
    cmocka_unit_test(memory_is_registered_once),
    cmocka_unit_test(neighbours_are_registered_apart),
    cmocka_unit_test(parts_of_pages_are_not_registered),
    cmocka_unit_test(managed_memory_is_reached_by_host_and_device),
    cmocka_unit_test(managed_memory_is_aligned_as_segments_are),
    cmocka_unit_test(managed_memory_is_given_back),
    cmocka_unit_test(wrong_managed_calls_are_refused),
};

CONTRACT_MAIN(tests)
