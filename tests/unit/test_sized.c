/*
 * Structures that begin with their size, from programs compiled with a newer header, and with no size set.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sized.h"
#include "host_support.h"
#include "weir/observe.h"

#include <stdio.h>
#include <string.h>

/* Room for any structure, and for members that this library does not know of. */
typedef union sized {
    size_t size;
    unsigned char bytes[16384];
} sized;

enum { MORE = 64 };

static weir_stream stream;
static void *block;
static weir_mempool pool;
static weir_handle_kind kind;

#define OUT(name, type, call)                                                                                          \
    static weir_status name(sized *out)                                                                                \
    {                                                                                                                  \
        return call;                                                                                                   \
    }                                                                                                                  \
    enum { name##_size = sizeof(type) };

OUT(last_error, weir_error, weir_last_error((weir_error *)out))
OUT(option, weir_option_info, weir_option_get(0, (weir_option_info *)out))
OUT(device, weir_device_info, weir_device_info_get(0, (weir_device_info *)out))
OUT(pointer, weir_pointer_info, weir_pointer_info_get(block, (weir_pointer_info *)out))
OUT(mempool, weir_mempool_info, weir_mempool_info_get(pool, (weir_mempool_info *)out))
OUT(mempool_stats, weir_memory_stats, weir_mempool_stats_get(pool, (weir_memory_stats *)out))
OUT(pinned_stats, weir_memory_stats, weir_pinned_stats_get((weir_memory_stats *)out))
OUT(used_stats, weir_memory_stats, weir_stats_get(0, (weir_memory_stats *)out))
OUT(unused_stats, weir_memory_stats, weir_stats_get(1, (weir_memory_stats *)out))
OUT(stream_stats, weir_stream_stats, weir_stream_stats_get(stream, (weir_stream_stats *)out))
OUT(device_memory, weir_device_memory, weir_device_memory_get(0, (weir_device_memory *)out))
OUT(handle_stats, weir_handle_stats, weir_handle_stats_get(kind, 0, (weir_handle_stats *)out))
OUT(kind_info, weir_handle_kind_info, weir_handle_kind_info_get(kind, (weir_handle_kind_info *)out))

static const struct {
    const char *name;
    weir_status (*get)(sized *out);
    size_t size;
} outs[] = {
#define X(name) { #name, name, name##_size },
    X(last_error) X(option) X(device) X(pointer) X(mempool) X(mempool_stats) X(pinned_stats) X(used_stats)
        X(unused_stats) X(stream_stats) X(device_memory) X(handle_stats) X(kind_info)
#undef X
};
enum { OUTS = sizeof outs / sizeof outs[0] };

static weir_status mempool_create(const sized *in)
{
    weir_mempool made;
    const weir_status status = weir_mempool_create((const weir_mempool_options *)in, &made);
    if (status == WEIR_OK) assert_ok(weir_mempool_unref(made));
    return status;
}

static weir_status graph_begin(const sized *in)
{
    weir_graph graph;
    const weir_status status = weir_graph_begin(stream, (const weir_graph_options *)in, &graph);
    if (status == WEIR_OK) {
        assert_ok(weir_graph_end(graph));
        assert_ok(weir_graph_destroy(graph));
    }
    return status;
}

static weir_status snapshot(const sized *in)
{
    return weir_snapshot_save("/dev/null", (const weir_snapshot_options *)in);
}

static int create_nothing(void *user, int on, void **handle)
{
    (void)on;
    *handle = user;
    return 0;
}

static int destroy_nothing(void *user, void *handle)
{
    (void)user;
    (void)handle;
    return 0;
}

static weir_status kind_register(const sized *in)
{
    weir_handle_kind made;
    return weir_handle_kind_register((const weir_handle_ops *)in, &made);
}

typedef struct input {
    const char *name;
    weir_status (*use)(const sized *in);
    size_t size;
    const void *good;
} input;

static const weir_mempool_options mempool_options = { .size = sizeof mempool_options, .device = 0 };
static const weir_graph_options graph_options = WEIR_GRAPH_OPTIONS_INIT;
static const weir_snapshot_options snapshot_options = WEIR_SNAPSHOT_OPTIONS_INIT;
static const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "sized", .create = create_nothing,
                                     .destroy = destroy_nothing };

static const input inputs[] = {
    { "mempool_create", mempool_create, sizeof mempool_options, &mempool_options },
    { "graph_begin", graph_begin, sizeof graph_options, &graph_options },
    { "snapshot", snapshot, sizeof snapshot_options, &snapshot_options },
    { "kind_register", kind_register, sizeof ops, &ops }, /* last, because a kind stays registered */
};
enum { INPUTS = sizeof inputs / sizeof inputs[0] };

static int open_it(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
    stream = new_stream(0);
    block = alloc(512);
    assert_ok(weir_mempool_create(&mempool_options, &pool));
    weir_handle_ops known = ops;
    known.name = "known";
    assert_ok(weir_handle_kind_register(&known, &kind));
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return 0;
}

/* The tail of a structure that is so many bytes larger than the library knows. */
static void fill(sized *s, size_t known, size_t size)
{
    memset(s, 0xa5, sizeof *s);
    memset(s, 0, known);
    s->size = size;
}

static bool all(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value) return false;
    return true;
}

static void unknown_members_of_a_newer_program_are_zeroed(void **state)
{
    (void)state;
    for (int i = 0; i < OUTS; i++) {
        sized out;
        fill(&out, outs[i].size, outs[i].size + MORE);
        if (outs[i].get(&out) != WEIR_OK) fail_msg("%s: %s", outs[i].name, weir_error_text());
        if (out.size != outs[i].size + MORE) fail_msg("%s: the size is %zu now", outs[i].name, out.size);
        if (!all(out.bytes + outs[i].size, MORE, 0)) fail_msg("%s: the tail is not zero", outs[i].name);
        if (!all(out.bytes + outs[i].size + MORE, MORE, 0xa5)) fail_msg("%s: written behind its end", outs[i].name);
    }
}

static void an_output_is_not_written_past_its_size(void **state)
{
    (void)state;
    for (int i = 0; i < OUTS; i++) {
        sized out;
        fill(&out, outs[i].size, outs[i].size);
        assert_ok(outs[i].get(&out));
        if (!all(out.bytes + outs[i].size, MORE, 0xa5)) fail_msg("%s: written behind its end", outs[i].name);
    }
}

static void an_output_is_untouched_where_the_call_fails(void **state)
{
    (void)state;
    sized out;
    fill(&out, sizeof(weir_pointer_info), sizeof(weir_pointer_info) + MORE);
    assert_status(weir_pointer_info_get(&out, (weir_pointer_info *)&out), WEIR_ERR_UNKNOWN_POINTER);
    assert_true(all(out.bytes + sizeof(weir_pointer_info), MORE, 0xa5));
}

/* Sizes that no structure can have of which so many bytes are known. */
enum { BAD_SIZES = 4 };

static size_t bad_size(size_t known, int which)
{
    const size_t sizes[BAD_SIZES] = { 0, known - 1, known + 4097, SIZE_MAX };
    return sizes[which];
}

/* No byte behind a structure is written for a size that nobody set. */
static void an_output_of_invalid_size_is_refused_and_untouched(void **state)
{
    (void)state;
    for (int i = 0; i < OUTS; i++) {
        for (int k = 0; k < BAD_SIZES; k++) {
            sized out;
            fill(&out, 0, bad_size(outs[i].size, k));
            assert_status(outs[i].get(&out), WEIR_ERR_INVALID_ARGUMENT);
            assert_non_null(strstr(weir_error_text(), "out->size is"));
            if (!all(out.bytes + sizeof out.size, 8192, 0xa5)) fail_msg("%s: written", outs[i].name);
        }
        assert_status(outs[i].get(NULL), WEIR_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(weir_error_text(), "out is NULL"));
    }
}

static void make_input(const input *of, sized *in, size_t size)
{
    memset(in, 0, sizeof *in);
    memcpy(in, of->good, of->size);
    in->size = size;
}

static void an_unknown_member_is_refused_unless_it_is_zero(void **state)
{
    (void)state;
    for (int i = 0; i < INPUTS; i++) {
        sized in;
        char where[64];
        make_input(&inputs[i], &in, inputs[i].size + MORE);
        in.bytes[inputs[i].size + 8] = 1;
        assert_status(inputs[i].use(&in), WEIR_ERR_INVALID_ARGUMENT);
        snprintf(where, sizeof where, "member at byte %zu ", inputs[i].size + 8);
        if (!strstr(weir_error_text(), where)) fail_msg("%s: %s", inputs[i].name, weir_error_text());
        in.bytes[inputs[i].size + 8] = 0;
        if (inputs[i].use(&in) != WEIR_OK) fail_msg("%s: %s", inputs[i].name, weir_error_text());
    }
}

static void an_input_of_invalid_size_is_refused_and_its_initialiser_named(void **state)
{
    (void)state;
    for (int i = 0; i < INPUTS; i++) {
        for (int k = 0; k < BAD_SIZES; k++) {
            sized in;
            make_input(&inputs[i], &in, bad_size(inputs[i].size, k));
            assert_status(inputs[i].use(&in), WEIR_ERR_INVALID_ARGUMENT);
            if (!strstr(weir_error_text(), "_INIT")) fail_msg("%s: %s", inputs[i].name, weir_error_text());
        }
    }
}

static void the_largest_size_is_the_known_one_and_as_much_again_as_may_come(void **state)
{
    (void)state;
    sized s = { .size = 64 + WR_SIZED_MORE_MAX };
    assert_ok(wr_sized_check_out("call", "type", &s, 64));
    assert_ok(wr_sized_check_in("call", "in", "INIT", &s, 64));
    s.size++;
    assert_status(wr_sized_check_out("call", "type", &s, 64), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(wr_sized_check_in("call", "in", "INIT", &s, 64), WEIR_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_members_of_a_newer_program_are_zeroed),
        cmocka_unit_test(an_output_is_not_written_past_its_size),
        cmocka_unit_test(an_output_is_untouched_where_the_call_fails),
        cmocka_unit_test(an_output_of_invalid_size_is_refused_and_untouched),
        cmocka_unit_test(an_input_of_invalid_size_is_refused_and_its_initialiser_named),
        cmocka_unit_test(the_largest_size_is_the_known_one_and_as_much_again_as_may_come),
        cmocka_unit_test(an_unknown_member_is_refused_unless_it_is_zero),
    };
    return cmocka_run_group_tests(tests, open_it, close_it);
}
