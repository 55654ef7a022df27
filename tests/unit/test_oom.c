/*
 * What an out-of-memory error says about pools, streams, handles and memory outside weir; as text and as JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device/runtime.h"
#include "pool_support.h"
#include "python_support.h"
#include "weir/observe.h"
#include "weir/trace.h"

#include <stdio.h>
#include <string.h>

static int open_small(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_memory = 64 * MIB });
    return 0;
}

static void refuse(size_t bytes, weir_stream stream)
{
    void *block = NULL;
    assert_status(weir_alloc_on(bytes, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
}

static void says(const char *part)
{
    if (!strstr(weir_error_text(), part)) fail_msg("\"%s\" is not in: %s", part, weir_error_text());
}

static int make_handle(void *user, int device, void **handle)
{
    (void)user, (void)device;
    *handle = &handle;
    return 0;
}

static int end_handle(void *user, void *handle)
{
    (void)user, (void)handle;
    return 0;
}

static void use_all_sorts(weir_mempool *pool, weir_stream *stream)
{
    static weir_handle_kind kind;
    void *block = NULL, *handle = NULL;
    *pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "weights"));
    *stream = new_stream(0);
    assert_ok(weir_alloc_from(*pool, 10 * MIB, *stream, &block));
    alloc_on(5 * MIB, default_stream(0));
    weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "worker", .create = make_handle, .destroy = end_handle };
    if (kind == 0) assert_ok(weir_handle_kind_register(&ops, &kind));
    assert_ok(weir_handle_get(kind, &handle));
}

static void the_error_names_pools_streams_and_steps(void **state)
{
    (void)state;
    char expected[128];
    weir_mempool pool;
    weir_stream stream;
    use_all_sorts(&pool, &stream);
    refuse(50 * MIB, stream);
    snprintf(expected, sizeof expected, "{0, %llu} (weights) 10.00 MiB, 10.00 MiB in use",
             (unsigned long long)pool.user);
    says(expected);
    says("By pool: {0, 0} 20.00 MiB");
    says("By stream: 0 20.00 MiB, 5.00 MiB in use, 15.00 MiB free");
    snprintf(expected, sizeof expected, "%#llx 10.00 MiB", (unsigned long long)(uintptr_t)native_of(stream));
    says(expected);
    says("Used outside weir: 0 bytes");
    says("Tried without success: finished frees, a new segment, idle segments of other streams, ");
    says("idle handles destroyed.\n");
    assert_null(strstr(weir_error_text(), "oversize")); /* without max_split_size there are none */
}

static bool frees_nothing(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    return false;
}

static void only_what_is_there_was_tried(void **state)
{
    (void)state;
    refuse(80 * MIB, default_stream(0));
    says("idle segments given back.\n");
    assert_ok(weir_reclaim_add(frees_nothing, NULL));
    refuse(80 * MIB, default_stream(0));
    says("idle segments given back, the program's callbacks.\n");
}

static void every_step_has_a_name(void **state)
{
    (void)state;
    for (int step = 0; step < WEIR_STEPS; step++) assert_string_not_equal(weir_step_name((weir_step)step), "unknown");
    assert_string_equal(weir_step_name(WEIR_STEPS), "unknown");
    assert_string_equal(weir_step_name((weir_step)-1), "unknown");
}

static void the_name_of_a_step_says_what_is_tried(void **state)
{
    (void)state;
    static const char *const names[WEIR_STEPS] = { "refused",
                                                   "finished frees",
                                                   "a new segment",
                                                   "idle segments of other streams",
                                                   "pools that lend",
                                                   "idle oversize segments given back",
                                                   "pending frees waited for",
                                                   "idle segments given back",
                                                   "idle handles destroyed",
                                                   "the program's callbacks" };
    for (int step = 0; step < WEIR_STEPS; step++) assert_string_equal(weir_step_name((weir_step)step), names[step]);
}

static void only_the_largest_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) alloc_on(512, new_stream(0));
    refuse(60 * MIB, default_stream(0));
    says(" on stream 0. The device has 64.00 MiB, ");
    says("; 3 more 6.00 MiB.");
    assert_non_null(strstr(weir_error_text(), "By stream: "));
}

static char *json(void)
{
    size_t length = 0;
    assert_ok(weir_error_json(NULL, 0, &length));
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_ok(weir_error_json(text, length + 1, &length));
    assert_int_equal(strlen(text), length);
    return text;
}

static void the_error_is_json_too(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_stream stream;
    need_python();
    use_all_sorts(&pool, &stream);
    refuse(50 * MIB + 1, stream);
    run_on("python3 -c '\n"
           "import json, sys\n"
           "e = json.load(sys.stdin)\n"
           "assert e[\"status\"] == \"WEIR_ERR_OUT_OF_MEMORY\" and e[\"code\"] == -2\n"
           "assert \"asked for 50.00 MiB\" in e[\"text\"]\n"
           "m = e[\"memory\"]\n"
           "assert m[\"requested_bytes\"] == 50 * 2**20 + 1\n"
           "assert m[\"reserved_bytes\"] == 30 * 2**20 and m[\"total_bytes\"] == 64 * 2**20\n"
           "assert sum(pool[\"ooms\"] for pool in m[\"pools\"]) == 1\n"
           "assert len(m[\"pools\"]) == 2 and len(m[\"streams\"]) == 2\n"
           "assert m[\"handles\"][0][\"kind\"] == \"worker\" and m[\"handles\"][0][\"live\"] == 1\n"
           "assert m[\"tried\"][0] == \"finished frees\" and m[\"advice\"]\n"
           "'",
           json());
}

static void the_json_has_the_figures_of_the_text(void **state)
{
    (void)state;
    need_python();
    alloc_on(4 * MIB, default_stream(0));
    alloc_on(3 * MIB, new_stream(0));
    refuse(40 * MIB, new_stream(0));
    run_on("python3 -c '\n"
           "import json, sys\n"
           "m = json.load(sys.stdin)[\"memory\"]\n"
           "names = \"segment limit lost free reserved in_use idle split pending largest_free largest_elsewhere\"\n"
           "mib = [m[name + \"_bytes\"] / 2**20 for name in names.split()]\n"
           "assert mib == [40, 0, 0, 24, 40, 7, 0, 33, 0, 0, 17], mib\n"
           "'",
           json());
}

static void the_json_names_the_device_the_stream_and_the_pool(void **state)
{
    (void)state;
    char command[400];
    void *block = NULL;
    need_python();
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    const weir_stream stream = new_stream(0);
    assert_status(weir_alloc_from(pool, 100 * MIB, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    snprintf(command, sizeof command,
             "python3 -c 'import json, sys; m = json.load(sys.stdin)[\"memory\"]; "
             "assert m[\"device\"] == 0 and m[\"stream\"] == \"%p\" and m[\"pool\"] == \"{%llu, %llu}\"'",
             native_of(stream), (unsigned long long)pool.capture, (unsigned long long)pool.user);
    run_on(command, json());
}

static void pools_that_the_json_does_not_list_are_counted_in_it(void **state)
{
    (void)state;
    weir_mempool pool;
    for (int i = 0; i < 80; i++) pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *block = NULL;
    assert_ok(weir_alloc_from(pool, 10 * MIB, default_stream(0), &block));
    refuse(60 * MIB, default_stream(0));
    char expected[64], *text = json();
    snprintf(expected, sizeof expected, "\"pools\":[{\"pool\":\"{0, %llu}\"", (unsigned long long)pool.user);
    assert_non_null(strstr(text, expected)); /* the heaviest */
    assert_non_null(strstr(text, "\"unlisted_pools\":{\"count\":17,\"reserved_bytes\":0}"));
    assert_non_null(strstr(text, "\"unlisted_streams\":{\"count\":0,"));
    free(text);
}

/* Each holds a segment of 2 MiB. */
static void streams_that_the_json_does_not_list_are_added_up_in_it(void **state)
{
    (void)state;
    for (int i = 0; i < 67; i++) alloc_on(MIB, new_stream(0));
    refuse(500 * MIB, default_stream(0));
    char *text = json();
    assert_non_null(strstr(text, "\"unlisted_streams\":{\"count\":3,\"reserved_bytes\":6291456}"));
    free(text);
}

static void the_json_tells_of_the_failure_even_when_what_it_names_is_gone(void **state)
{
    weir_mempool pool;
    weir_stream stream;
    use_all_sorts(&pool, &stream);
    refuse(50 * MIB, stream);
    char *at_once = json();
    const int closed = close_host(state);
    char *later = json();
    assert_int_equal(closed, 0);
    assert_string_equal(later, at_once);
    free(at_once);
    free(later);
}

static void other_errors_have_no_memory_in_their_json(void **state)
{
    (void)state;
    refuse(65 * MIB, default_stream(0));
    assert_status(weir_free(&state), WEIR_ERR_UNKNOWN_POINTER);
    char *text = json();
    assert_null(strstr(text, "\"memory\""));
    assert_non_null(strstr(text, "\"status\":\"WEIR_ERR_UNKNOWN_POINTER\""));
    free(text);
    size_t length = 0;
    char byte;
    assert_int_equal(weir_error_json(&byte, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_error_json(NULL, 1, &length), WEIR_ERR_INVALID_ARGUMENT);
    says("was not allocated by weir"); /* asking changes nothing */
}

/* Each of the library's own allocations for the error fails in turn: the error stays the same, with less in it. */
static void the_error_is_reported_when_its_own_records_fail(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_stream stream;
    use_all_sorts(&pool, &stream);
    refuse(60 * MIB, stream);
    for (uint64_t nth = 1; nth < 12; nth++) {
        void *block = NULL;
        wr_meta_fail_nth(nth);
        const weir_status status = weir_alloc_on(60 * MIB, stream, &block);
        wr_meta_fail_nth(0);
        if (status == WEIR_ERR_OUT_OF_HOST_MEMORY) continue; /* an earlier step failed */
        assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
        says("asked for 60.00 MiB");
    }
}

static bool fail_in_vain(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    void *block = NULL;
    assert_status(weir_alloc_on(5, (weir_stream){ 12345 }, &block), WEIR_ERR_INVALID_STREAM);
    return false;
}

static void the_last_refusal_is_not_a_callbacks(void **state)
{
    (void)state;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    o.cap = 4 * MIB;
    weir_mempool pool = { 0, 0 };
    void *block = NULL;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_reclaim_add(fail_in_vain, NULL));
    assert_status(weir_alloc_from(pool, 8 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    says("cap");
    assert_null(strstr(weir_error_text(), "does not exist"));
    assert_ok(weir_reclaim_remove(fail_in_vain, NULL));
}

static void more_than_any_device_has_is_a_failure_that_counts(void **state)
{
    (void)state;
    weir_event events[4];
    size_t count = 0;
    assert_ok(weir_history_start(16, 0));
    refuse((size_t)1 << 61, default_stream(0));
    says("is the size negative?");
    refuse((size_t)-1, default_stream(0));
    assert_int_equal(stats_of(0).ooms, 2);
    assert_ok(weir_history_read(0, events, 4, &count, NULL));
    assert_int_equal(count, 2);
    assert_int_equal(events[0].kind, WEIR_EVENT_OOM);
    assert_int_equal(events[0].size, (size_t)1 << 61);
}

#define HOST(test) cmocka_unit_test_setup_teardown(test, open_small, close_host)

/* Of 64 MiB, 40 are idle in a private pool. */
static void expect_that_emptying_a_pool_helps(size_t bytes)
{
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_ok(weir_free(alloc_from(pool, 40 * MIB, default_stream(0))));
    refuse(bytes, new_stream(0));
    says("empty one with weir_mempool_empty_cache()");
    assert_ok(weir_mempool_empty_cache(pool));
    alloc_on(bytes, new_stream(0));
}

static void idle_memory_of_private_pools_is_named(void **state)
{
    (void)state;
    expect_that_emptying_a_pool_helps(40 * MIB);
}

static void idle_memory_of_private_pools_is_named_where_it_and_what_is_free_are_enough(void **state)
{
    (void)state;
    expect_that_emptying_a_pool_helps(50 * MIB);
}

static void idle_memory_of_private_pools_is_named_where_a_limit_is_reached(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 44 * MIB));
    expect_that_emptying_a_pool_helps(20 * MIB);
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    refuse(40 * MIB, new_stream(0));
    says("the limit is reached: raise it");
}

static void the_limit_is_not_the_reason_where_the_device_is_full_too(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    void *outside = NULL;
    assert_ok(weir_memory_limit_set(0, 30 * MIB));
    assert_ok(backend->segment_alloc(0, 50 * MIB, &outside));
    refuse(32 * MIB, default_stream(0));
    assert_null(strstr(weir_error_text(), "The device has room"));
    says("Most of the device is used outside weir");
    assert_ok(backend->segment_free(0, outside, 50 * MIB));
    refuse(32 * MIB, default_stream(0));
    says("The device has room, but the limit is reached");
}

static void a_pools_cap_is_the_reason_whatever_is_idle_elsewhere(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool_options capped = pool_options(WEIR_MEMORY_DEVICE, "");
    capped.cap = 4 * MIB;
    const weir_mempool pool = make_pool(capped), other = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_ok(weir_free(alloc_from(other, 30 * MIB, default_stream(0))));
    assert_status(weir_alloc_from(pool, 5 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    says("The device has room: the last refusal says what is missing.");
    says("cap 4.00 MiB; free blocks of the pool, or create it with a larger cap");
}

static void a_limit_with_room_is_not_the_reason(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool_options capped = pool_options(WEIR_MEMORY_DEVICE, "");
    capped.cap = 4 * MIB;
    assert_ok(weir_memory_limit_set(0, 60 * MIB));
    assert_status(weir_alloc_from(make_pool(capped), 5 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    says("The device has room: the last refusal says what is missing.");
}

static void blocks_of_a_paused_pool_are_not_in_use(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    void *freed = alloc_from(pool, 3 * MIB, default_stream(0));
    alloc_from(pool, 4 * MIB, default_stream(0));
    assert_ok(weir_free(freed));
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_DROP));
    alloc_on(20 * MIB, default_stream(0));
    refuse(60 * MIB, default_stream(0));
    says("weir holds 20.00 MiB there: 20.00 MiB in use, 0 bytes idle, 0 bytes free between blocks in use");
    assert_ok(weir_resume(0, "model"));
    refuse(60 * MIB, default_stream(0));
    says("weir holds 40.00 MiB there: 24.00 MiB in use, 0 bytes idle, 16.00 MiB free between blocks in use");
}

static void free_memory_outside_whole_chunks_lies_between_blocks_in_use(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *whole = alloc_from(pool, 30 * MIB, default_stream(0)), *live = alloc_from(pool, 3 * MIB, default_stream(0));
    assert_ok(weir_free(whole));
    refuse(60 * MIB, new_stream(0));
    says("weir holds 34.00 MiB there: 3.00 MiB in use, 30.00 MiB idle, 1024.00 KiB free between blocks in use");
    assert_ok(weir_free(live));
    refuse(60 * MIB, new_stream(0));
    says("weir holds 34.00 MiB there: 0 bytes in use, 34.00 MiB idle, 0 bytes free between blocks in use");
    assert_int_equal(stats_of(0).inactive_split_bytes[WEIR_STAT_ALL].current, 0);
}

static int open_rounding(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_memory = 64 * MIB, .roundup_power2_divisions = "2" });
    return 0;
}

static void the_rounded_size_of_a_request_is_reported(void **state)
{
    (void)state;
    alloc_on(30 * MIB, default_stream(0));
    refuse(33 * MIB, default_stream(0));
    says("asked for 33.00 MiB, rounded up to 48.00 MiB, on stream 0");
}

static int open_gib(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 1024 * MIB });
    return 0;
}

/* A new chunk is an eighth of what is held, up to 16 MiB, when there is room for that. */
static void the_last_of_a_device_serves_small_requests(void **state)
{
    (void)state;
    alloc_on(1018 * MIB, default_stream(0));
    alloc_on(1000, default_stream(0));
    alloc_on(3 * MIB, default_stream(0));
    refuse(2 * MIB, default_stream(0));
    assert_int_equal(reserved_on(0), 1024 * MIB);
}

static void a_lost_device_is_no_lack_of_memory(void **state)
{
    (void)state;
    void *block = NULL;
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    alloc_on(20 * MIB, default_stream(0));
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_alloc_on(20 * MIB, default_stream(0), &block), WEIR_ERR_DEVICE_LOST);
}

static int close_lost(void **state)
{
    (void)state;
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    return 0;
}

static void figures_that_the_driver_does_not_give_are_left_out(void **state)
{
    (void)state;
    alloc_on(20 * MIB, default_stream(0));
    assert_ok(weir_host_fail(WEIR_BACKEND_device_memory, 1, WEIR_ERR_NOT_SUPPORTED));
    refuse(60 * MIB, default_stream(0));
    says(" (the driver does not say how much is free)");
    assert_null(strstr(weir_error_text(), "Used outside weir"));
}

/* ---- memory that is lost ----------------------------------------------------------------------------------------- */

static weir_status take_mapped_from(weir_mempool *pool, size_t bytes)
{
    void *block = NULL;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    o.memory = WEIR_MEMORY_MAPPED;
    if (pool->user == 0) assert_ok(weir_mempool_create(&o, pool));
    const weir_status status = weir_alloc_from(*pool, bytes, default_stream(0), &block);
    if (status == WEIR_OK) assert_ok(weir_free(block));
    return status;
}

static void is_lost(const char *bytes)
{
    char lost[64];
    snprintf(lost, sizeof lost, "\nLost: %s, which the driver has not taken back", bytes);
    refuse(60 * MIB, default_stream(0));
    says(lost);
    says("Used outside weir: 0 bytes");
}

static void memory_that_could_be_neither_mapped_nor_given_back_is_reported(void **state)
{
    (void)state;
    static const enum weir_backend_entry kept[] = { WEIR_BACKEND_vm_destroy, WEIR_BACKEND_vm_unmap };
    static const char *const bytes[] = { "12.00 MiB", "24.00 MiB" };
    weir_mempool pool = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
        assert_ok(weir_host_fail(kept[i], 1, WEIR_ERR_DRIVER));
        assert_status(take_mapped_from(&pool, 12 * MIB), WEIR_ERR_DRIVER);
        assert_int_equal(reserved_on(0), 0);
        is_lost(bytes[i]);
    }
}

static void memory_that_is_neither_taken_back_nor_mapped_again_is_reported(void **state)
{
    (void)state;
    weir_mempool pool = { 0, 0 };
    assert_ok(take_mapped_from(&pool, 12 * MIB));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(reserved_on(0), 0);
    is_lost("12.00 MiB");
}

static void chunks_that_are_not_taken_back_are_reported(void **state)
{
    (void)state;
    void *block = NULL;
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(weir_alloc(12 * MIB, &block), WEIR_ERR_DRIVER);
    is_lost("12.00 MiB");
    assert_ok(weir_free(alloc(12 * MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_empty_cache(0));
    is_lost("24.00 MiB");
}

static void the_limit_counts_lost_memory(void **state)
{
    (void)state;
    weir_mempool pool = { 0, 0 };
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(take_mapped_from(&pool, 20 * MIB), WEIR_ERR_DRIVER);
    refuse(22 * MIB, default_stream(0));
    says("raise it with WEIR_MEMORY_LIMIT");
    assert_null(strstr(weir_error_text(), "The last refusal")); /* the device would have room */
    assert_ok(weir_free(alloc(20 * MIB)));
}

static weir_status give_misaligned(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    (void)bytes, (void)device, (void)native_stream;
    *base = user;
    return WEIR_OK;
}

static weir_status take_nothing_back(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    (void)user, (void)base, (void)bytes, (void)device, (void)native_stream;
    return WEIR_ERR_DRIVER;
}

static void memory_that_a_source_does_not_take_back_is_lost(void **state)
{
    (void)state;
    static char memory[1024];
    const weir_segment_source ops = { give_misaligned, take_nothing_back, NULL,
                                      memory + 1 - (uintptr_t)memory % 512 + 512 };
    const weir_mempool pool = make_pool_from(&ops);
    void *block = NULL;
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_INVALID_ARGUMENT);
    says("so that 2097152 bytes are lost");
    refuse(70 * MIB, default_stream(0));
    says("\nLost: 2.00 MiB, which the driver has not taken back");
}

/* The driver counts what of it is on the device, weir does not. */
static void memory_of_managed_pools_may_be_used_outside_weir(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MANAGED, ""));
    refuse(70 * MIB, default_stream(0));
    says("(contexts, libraries, other processes).");
    alloc_from(pool, MIB, default_stream(0));
    refuse(70 * MIB, default_stream(0));
    says(
        "(contexts, libraries, other processes, and what is on the device of the 2.00 MiB in managed and pinned pools).");
}

static void idle_memory_that_is_paused_is_not_held(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    assert_ok(weir_free(alloc_from(pool, 20 * MIB, default_stream(0))));
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_DROP));
    refuse(70 * MIB, default_stream(0));
    says("weir holds 0 bytes there: 0 bytes in use, 0 bytes idle, 0 bytes free between blocks in use");
}

static void idle_managed_memory_is_no_room_on_the_device(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MANAGED, ""));
    assert_ok(weir_free(alloc_from(pool, 40 * MIB, default_stream(0))));
    refuse(30 * MIB, default_stream(0));
    says("Free something, ask for less, or use a larger device.");
}

static void a_free_block_of_another_stream_that_is_just_large_enough_is_named(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    void *just = alloc_on(9 * MIB, other), *rest = alloc_on(8 * MIB, other); /* in one segment */
    alloc(44 * MIB);
    assert_ok(weir_free(just));
    refuse(9 * MIB, default_stream(0));
    says("A free block of another stream is large enough: allocate on fewer streams.");
    assert_ok(weir_free(rest));
}

static void use_outside_weir_is_blamed_when_it_is_most_of_the_device(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    void *outside = NULL, *block = alloc(20 * MIB);
    assert_ok(backend->segment_alloc(0, 40 * MIB, &outside));
    refuse(12 * MIB, default_stream(0));
    says("Most of the device is used outside weir");
    assert_ok(weir_free(block));
    assert_ok(backend->segment_free(0, outside, 40 * MIB));
    assert_ok(weir_empty_cache(0));

    block = alloc(40 * MIB);
    assert_ok(backend->segment_alloc(0, 20 * MIB, &outside));
    refuse(12 * MIB, default_stream(0));
    says("Free something, ask for less, or use a larger device.");
    assert_ok(weir_free(block));
    assert_ok(backend->segment_free(0, outside, 20 * MIB));
}

static void free_memory_of_other_streams_is_named(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream other = new_stream(0);
    void *blocks[] = { alloc_on(12 * MIB, other), alloc_on(12 * MIB, other) };
    void *block = alloc(30 * MIB);
    for (int i = 0; i < 2; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(backend->capture_begin(0, native_of(other), WEIR_CAPTURE_RELAXED)); /* so they are not given back */
    refuse(20 * MIB, default_stream(0));
    says("Enough is free on other streams: allocate on fewer streams.");
    end_natively(native_of(other));
    assert_ok(weir_free(block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST(free_memory_of_other_streams_is_named),
        HOST(the_error_names_pools_streams_and_steps),
        HOST(only_what_is_there_was_tried),
        HOST(use_outside_weir_is_blamed_when_it_is_most_of_the_device),
        HOST(idle_memory_that_is_paused_is_not_held),
        HOST(idle_managed_memory_is_no_room_on_the_device),
        HOST(a_free_block_of_another_stream_that_is_just_large_enough_is_named),
        cmocka_unit_test(every_step_has_a_name),
        cmocka_unit_test(the_name_of_a_step_says_what_is_tried),
        HOST(only_the_largest_are_named),
        HOST(the_error_is_json_too),
        HOST(the_json_has_the_figures_of_the_text),
        HOST(the_json_names_the_device_the_stream_and_the_pool),
        HOST(pools_that_the_json_does_not_list_are_counted_in_it),
        { "streams_that_the_json_does_not_list_are_added_up_in_it",
          streams_that_the_json_does_not_list_are_added_up_in_it, open_host_of_policy, close_host, (void *)"segments" },
        cmocka_unit_test_setup(the_json_tells_of_the_failure_even_when_what_it_names_is_gone, open_small),
        HOST(other_errors_have_no_memory_in_their_json),
        HOST(the_error_is_reported_when_its_own_records_fail),
        HOST(figures_that_the_driver_does_not_give_are_left_out),
        HOST(idle_memory_of_private_pools_is_named),
        HOST(idle_memory_of_private_pools_is_named_where_it_and_what_is_free_are_enough),
        HOST(idle_memory_of_private_pools_is_named_where_a_limit_is_reached),
        HOST(a_pools_cap_is_the_reason_whatever_is_idle_elsewhere),
        HOST(a_limit_with_room_is_not_the_reason),
        HOST(the_limit_is_not_the_reason_where_the_device_is_full_too),
        HOST(blocks_of_a_paused_pool_are_not_in_use),
        { "idle_memory_of_private_pools_is_named (chunks)", idle_memory_of_private_pools_is_named, open_small_host,
          close_host, NULL },
        cmocka_unit_test_setup_teardown(free_memory_outside_whole_chunks_lies_between_blocks_in_use, open_small_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(the_rounded_size_of_a_request_is_reported, open_rounding, close_host),
        cmocka_unit_test_setup_teardown(the_last_of_a_device_serves_small_requests, open_gib, close_host),
        HOST(memory_that_could_be_neither_mapped_nor_given_back_is_reported),
        HOST(memory_that_is_neither_taken_back_nor_mapped_again_is_reported),
        cmocka_unit_test_setup_teardown(chunks_that_are_not_taken_back_are_reported, open_small_host, close_host),
        HOST(the_limit_counts_lost_memory),
        HOST(memory_that_a_source_does_not_take_back_is_lost),
        HOST(memory_of_managed_pools_may_be_used_outside_weir),
        HOST(the_last_refusal_is_not_a_callbacks),
        HOST(more_than_any_device_has_is_a_failure_that_counts),
        cmocka_unit_test_setup_teardown(a_lost_device_is_no_lack_of_memory, open_small, close_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
