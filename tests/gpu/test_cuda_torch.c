/*
 * weir and PyTorch in one process: its streams, its allocator and its kernels next to weir's memory. PyTorch is behind
 * torch_side.h; skipped where TORCH_SIDE names no file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "interop.h"
#include "torch_side.h"

#include <stdlib.h>

enum { COUNT = 100000, BYTES = COUNT * sizeof(float) };

static const torch_side *torch;

static bool find_torch(void)
{
    const char *file = getenv("TORCH_SIDE");
    void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "torch_side_get") : NULL;
    const torch_side *(*get)(void) = NULL;
    if (!symbol) {
        print_message("skipped: %s\n",
                      file ? dlerror() : "TORCH_SIDE names no file; scripts/gpu sets it where PyTorch is");
        return false;
    }
    memcpy(&get, &symbol, sizeof get);
    torch = get();
    const char *reason = torch->begin();
    if (reason) print_message("skipped: PyTorch cannot be used here: %s\n", reason);
    return reason == NULL;
}

/* Element i is 2 * (first + i) + 1 + added. */
static void assert_numbers(const float *memory, weir_stream stream, float first, float added)
{
    static float found[COUNT];
    memset(found, 0, sizeof found);
    assert_ok(weir_copy(found, memory, BYTES, stream));
    assert_ok(weir_stream_synchronize(stream));
    for (int i = 0; i < COUNT; i++)
        if (found[i] != 2 * (first + (float)i) + 1 + added) fail_msg("number %d is %g", i, (double)found[i]);
}

static void torch_computes_on_weirs_memory(void **state)
{
    (void)state;
    void *native = torch->stream(0);
    const weir_stream stream = adopt(0, native);
    float *tensor = torch->make(native, 0, COUNT, 3), *ours = alloc_on(BYTES, stream);
    assert_ok(weir_copy(ours, tensor, BYTES, stream));
    torch->add_one(native, 0, ours, COUNT);
    assert_numbers(ours, stream, 3, 1);
    assert_numbers(tensor, stream, 3, 0);
    assert_int_equal(weir_free(tensor), WEIR_ERR_UNKNOWN_POINTER);
    torch->drop();
    assert_ok(weir_free(ours));
    assert_ok(weir_stream_destroy(stream));
    /* The stream is PyTorch's, and still works. */
    tensor = torch->make(native, 0, COUNT, 5);
    const weir_stream again = adopt(0, native);
    assert_numbers(tensor, again, 5, 0);
    torch->drop();
    assert_ok(weir_stream_destroy(again));
}

static void both_allocators_work_side_by_side(void **state)
{
    (void)state;
    void *native = torch->stream(0);
    const weir_stream stream = adopt(0, native);
    float *kept = alloc_on(BYTES, stream);
    float *first = torch->make(native, 0, COUNT, 1000);
    assert_ok(weir_copy(kept, first, BYTES, stream));
    torch->drop();
    for (int i = 0; i < 40; i++) {
        float *tensor = torch->make(native, 0, COUNT, (float)i), *block = alloc_on(BYTES << (i % 6), stream);
        assert_ok(weir_copy(block, tensor, BYTES, stream));
        if (i % 8 == 3) torch->empty_cache();
        if (i % 8 == 5) assert_ok(weir_empty_cache(0));
        torch->add_one(native, 0, block, COUNT);
        assert_numbers(block, stream, (float)i, 1);
        assert_numbers(tensor, stream, (float)i, 0);
        assert_ok(weir_free(block));
        torch->drop();
    }
    assert_numbers(kept, stream, 1000, 0);
    assert_ok(weir_free(kept));
    assert_ok(weir_validate(0));
    assert_ok(weir_stream_destroy(stream));
    torch->empty_cache();
    assert_int_equal(torch->reserved(0), 0);
}

static void memory_recorded_on_torchs_stream_waits_for_its_kernels(void **state)
{
    (void)state;
    enum { KERNELS = 2000 };
    static float zeros[COUNT];
    void *native = torch->stream(0);
    const weir_stream theirs = adopt(0, native);
    weir_stream own = { 0 };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own));
    float *ours = alloc_on(BYTES, own), *result = alloc_on(BYTES, own);
    assert_ok(weir_copy(ours, zeros, BYTES, own));
    assert_ok(weir_stream_wait(theirs, own));
    for (int i = 0; i < KERNELS; i++) torch->add_one(native, 0, ours, COUNT);
    assert_ok(weir_copy(result, ours, BYTES, theirs));
    assert_ok(weir_record_stream(ours, theirs));
    assert_ok(weir_free(ours));
    /* The next owner of the memory must not be seen by those kernels. */
    float *next = alloc_on(BYTES, own);
    assert_ok(weir_fill(next, 0x7f, BYTES, own));
    static float found[COUNT];
    assert_ok(weir_copy(found, result, BYTES, theirs));
    assert_ok(weir_stream_synchronize(theirs));
    for (int i = 0; i < COUNT; i++) assert_true(found[i] == KERNELS);
    assert_ok(weir_free(next));
    assert_ok(weir_free(result));
    assert_ok(weir_stream_destroy(theirs));
    assert_ok(weir_stream_destroy(own));
}

static void torch_works_on_after_weir_is_closed(void **state)
{
    (void)state;
    void *native = torch->stream(0);
    const weir_stream stream = adopt(0, native);
    float *ours = alloc_on(BYTES, stream);
    assert_ok(weir_fill(ours, 0, BYTES, stream));
    float *tensor = torch->make(native, 0, COUNT, 8);
    assert_ok(weir_close());
    torch->add_one(native, 0, tensor, COUNT);
    open_both(NULL);
    const weir_stream again = adopt(0, native);
    assert_numbers(tensor, again, 8, 1);
    torch->drop();
    assert_ok(weir_stream_destroy(again));
}

static void a_device_set_through_torch_is_noticed(void **state)
{
    (void)state;
    if (device_count < 2) {
        print_message("skipped: there is one device, so nobody can set another\n");
        skip();
    }
    int device = -1;
    void *pointer = NULL;
    torch->set_device(1);
    assert_ok(weir_device_get_current(&device));
    assert_int_equal(device, 1);
    assert_ok(weir_alloc(MIB, &pointer));
    assert_int_equal(device_of(pointer), 1);
    assert_ok(weir_free(pointer));
    assert_ok(weir_device_set_current(0));
    assert_int_equal(torch->device(), 0);

    void *native = torch->stream(1);
    const weir_stream stream = adopt(1, native);
    float *tensor = torch->make(native, 1, COUNT, 2), *ours = alloc_on(BYTES, stream);
    assert_ok(weir_copy(ours, tensor, BYTES, stream));
    torch->add_one(native, 1, ours, COUNT);
    assert_numbers(ours, stream, 2, 1);
    assert_int_equal(device_of(ours), 1);
    assert_int_equal(torch->device(), 0);
    torch->drop();
    assert_ok(weir_free(ours));
    assert_ok(weir_stream_destroy(stream));
}

#define interop_test(test) cmocka_unit_test_setup_teardown(test, open_both, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        interop_test(torch_computes_on_weirs_memory),
        interop_test(both_allocators_work_side_by_side),
        interop_test(memory_recorded_on_torchs_stream_waits_for_its_kernels),
        interop_test(torch_works_on_after_weir_is_closed),
        interop_test(a_device_set_through_torch_is_noticed),
    };
    const int missing = not_both();
    if (missing != 0) return missing;
    if (!find_torch()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
