#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

static const char *const shapes[] = { "0", "1", "2", "3", "4", "5", "batch1", "batch3", "optimized", "torch" };
#define SHAPES (sizeof shapes / sizeof *shapes)

static file_bytes shape(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, WEIR_TEST_DATA "/pickles/snapshot-%s.pickle", name);
    return read_file(path);
}

/* The contents of the snapshot that tests/data/pickles/make.py writes. */
static void check_snapshot(const trace *t)
{
    static const weir_event expected[] = {
        { 1000000, 0x7f0000000000, 2097152, 0, { 0, 0 }, WEIR_EVENT_SEGMENT_ALLOC, 0, 0 },
        { 1001000, 0x7f0000000000, 1000, 0, { 0, 0 }, WEIR_EVENT_ALLOC, 0, 0 },
        { 1002000, 4096, UINT64_C(1) << 40, 0, { 0, 0 }, WEIR_EVENT_OOM, 1, 0 },
        { 1003000, 0x7f0000000400, 5000, 0x55550000, { 0, 7 }, WEIR_EVENT_ALLOC, 0, 0 },
        { 1003000, 0x7f1000000000, 2097152, 0, { 0, 0 }, WEIR_EVENT_SEGMENT_FREE, 1, 0 },
        { 1005000, 0x7f0000000000, 1000, 0, { 0, 0 }, WEIR_EVENT_FREE_REQUESTED, 0, 0 },
        { 1006000, 0x7f0000000000, 1000, 0, { 0, 0 }, WEIR_EVENT_FREE_COMPLETED, 0, 0 },
        { 1007000, 0xffff800000000000, 20971520, 0, { 0, 0 }, WEIR_EVENT_SEGMENT_MAP, 0, 0 },
        { 1008000, 0xffff800000000000, 20971520, 0, { 0, 0 }, WEIR_EVENT_SEGMENT_UNMAP, 0, 0 },
        { 1010000, 0, 5000, 0, { 0, 0 }, WEIR_EVENT_SNAPSHOT, 0, 0 },
    };
    assert_int_equal(t->count, sizeof expected / sizeof *expected);
    assert_memory_equal(t->events, expected, sizeof expected);

    /* One frame occurs twice in a stack, as in a recursion, and many events share the stack. */
    const trace_stacks *stacks = &t->stacks;
    assert_int_equal(stacks->count, 3);
    assert_int_equal(stacks->first[stacks->of[3] + 1] - stacks->first[stacks->of[3]], 2);
    for (size_t i = stacks->first[stacks->of[3]]; i < stacks->first[stacks->of[3] + 1]; i++)
        assert_string_equal(stacks->frames[stacks->items[i]], "train.py:12:step\\with \xc3\xa9 and a\nline");
    assert_string_equal(stacks->frames[stacks->items[stacks->first[stacks->of[0]]]], "model.py:3:forward");
    assert_int_equal(stacks->of[0], stacks->of[9]);
    assert_int_equal(stacks->of[0], stacks->of[2]);
    assert_int_equal(t->segment_count, 1);
    assert_int_equal(t->segments[0].bytes, 2097152);

    static const trace_live live[] = {
        { .address = 0x7f0000000400, .bytes = 5120, .requested = 5000, .pool = { 0, 7 } },
        { .address = 0x7f0000001800, .bytes = 2048, .requested = 2000, .pool = { 0, 7 }, .pending = true },
    };
    assert_int_equal(t->live_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t->live[i].address, live[i].address);
        assert_int_equal(t->live[i].bytes, live[i].bytes);
        assert_int_equal(t->live[i].requested, live[i].requested);
        assert_int_equal(t->live[i].pool[1], live[i].pool[1]);
        assert_int_equal(t->live[i].pending, live[i].pending);
    }
    assert_true(t->settings.known && t->settings.expandable_segments);
    assert_int_equal(t->settings.max_split_size, 67108864);
    assert_true(t->settings.gc_threshold == 0.75);
    assert_string_equal(t->settings.config, "expandable_segments:True,max_split_size_mb:64");
    assert_string_equal(
        t->settings.roundup_power2_divisions,
        "[1:0,2:0,4:0,8:0,16:0,32:0,64:0,128:0,256:1,512:2,1024:8,2048:0,4096:0,8192:0,16384:0,32768:0]");
}

static void every_protocol_and_shape_reads_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        file_bytes f = shape(shapes[i]);
        trace t;
        trace_error e;
        if (!read_exact(f.bytes, f.count, NULL, &t, &e)) fail_msg("%s: %s", shapes[i], e.text);
        check_snapshot(&t);
        trace_release(&t);
        free(f.bytes);
    }
}

static void a_pickle_cut_anywhere_is_refused_with_an_offset(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        file_bytes f = shape(shapes[i]);
        for (size_t count = 0; count < f.count; count++) {
            trace t;
            trace_error e = { .offset = UINT64_MAX, .text = "" };
            assert_false(read_exact(f.bytes, count, NULL, &t, &e));
            assert_true(e.offset <= count);
            assert_true(e.text[0] != '\0');
        }
        free(f.bytes);
    }
}

static void a_pickle_with_any_byte_changed_is_read_or_refused(void **state)
{
    (void)state;
    file_bytes f = shape("4");
    for (size_t at = 0; at < f.count; at++) {
        for (int change = 1; change < 256; change <<= 1) {
            f.bytes[at] ^= (uint8_t)change;
            trace t;
            trace_error e = { .offset = UINT64_MAX, .text = "" };
            if (read_exact(f.bytes, f.count, NULL, &t, &e))
                trace_release(&t);
            else
                assert_true(e.text[0] != '\0' && e.offset <= f.count);
            f.bytes[at] ^= (uint8_t)change;
        }
    }
    free(f.bytes);
}

static void code_is_refused_by_opcode_and_offset(void **state)
{
    (void)state;
    assert_int_equal(REFUSED("\x80\x02\x63os\nsystem\nX\x02\0\0\0id\x85R.", "opcode 0x63 (GLOBAL) is not data"), 2);
    assert_int_equal(REFUSED("\x80\x04\x8c\x02os\x8c\x06system\x93.", "opcode 0x93 (STACK_GLOBAL) is not data"), 14);
    assert_int_equal(REFUSED("\x80\x02}q\0)R.", "(REDUCE) is not data"), 6);
    assert_int_equal(REFUSED("\x80\x02}}b.", "(BUILD) is not data"), 4);
    assert_int_equal(REFUSED("(lp0\n(ios\nsystem\n.", "(INST) is not data"), 6);
    REFUSED("\x80\x02(o.", "(OBJ) is not data");
    REFUSED("\x80\x02}\x81.", "(NEWOBJ) is not data");
    REFUSED("\x80\x04}\x92.", "(NEWOBJ_EX) is not data");
    REFUSED("\x80\x02\x82\x01.", "(EXT1) is not data");
    REFUSED("\x80\x02\x83\x01\0.", "(EXT2) is not data");
    REFUSED("\x80\x02\x84\x01\0\0\0.", "(EXT4) is not data");
    REFUSED("\x80\x02Pid\n.", "(PERSID) is not data");
    REFUSED("\x80\x02Q.", "(BINPERSID) is not data");
    REFUSED("\x80\x05\x97.", "(NEXT_BUFFER) is not data");
    REFUSED("\x80\x05\x98.", "(READONLY_BUFFER) is not data");
}

static void unknown_opcodes_and_protocols_are_refused(void **state)
{
    (void)state;
    assert_int_equal(REFUSED("\x80\x02}\xff.", "opcode 0xff is unknown"), 3);
    assert_int_equal(REFUSED("\x80\x09}.", "protocol 9 is newer than 5"), 0);
}

static void the_stack_cannot_be_dug_under(void **state)
{
    (void)state;
    REFUSED("\x80\x02.", "needs 1 values, the stack has 0");
    REFUSED("\x80\x02"
            "0.",
            "needs 1 values");
    REFUSED("\x80\x02"
            "2.",
            "needs 1 values");
    REFUSED("\x80\x02]a.", "needs 2 values, the stack has 1");
    REFUSED("\x80\x02}Ns.", "needs 3 values, the stack has 2");
    REFUSED("\x80\x02K\x01\x86.", "needs 2 values");
    REFUSED("\x80\x02q\0.", "needs 1 values");
    REFUSED("\x80\x02](a.", "needs 2 values, the stack has 0");
    REFUSED("\x80\x02(.", "needs 1 values");
}

static void marks_must_match(void **state)
{
    (void)state;
    REFUSED("\x80\x02]e.", "without a MARK");
    REFUSED("\x80\x02}u.", "without a MARK");
    REFUSED("\x80\x02t.", "without a MARK");
    REFUSED("\x80\x02"
            "1.",
            "without a MARK");
    REFUSED("\x80\x02(e.", "needs a new list");
    REFUSED("\x80\x02}(e.", "needs a new list");
    REFUSED("\x80\x02](NNu.", "needs a new dict");
    REFUSED("\x80\x02}(Nu.", "a key without a value");
    REFUSED("\x80\x02(Nd.", "a key without a value");
    REFUSED("\x80\x04](N\x90.", "needs a new set");
}

static void memo_indices_are_checked(void **state)
{
    (void)state;
    REFUSED("\x80\x02h\x05.", "memo index 5 was never stored");
    REFUSED("\x80\x02j\xff\xff\xff\xff.", "memo index 4294967295 was never stored");
    REFUSED("\x80\x02}r\xff\xff\xff\xff.", "memo index 4294967295 is out of range");
    REFUSED("(lp99999999999999999999\n.", "bad memo index");
    REFUSED("(lp-1\n.", "bad memo index");
    REFUSED("(lpx\n.", "bad memo index");
}

static void sizes_over_the_limit_are_refused_before_they_are_read(void **state)
{
    (void)state;
    REFUSED("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "a.",
            "18446744073709551615 bytes, more than the limit");
    REFUSED("\x80\x04\x8e\0\0\0\0\0\0\0\x10.", "more than the limit");
    REFUSED("\x80\x05\x96\0\0\0\0\0\0\0\x10.", "more than the limit");
    REFUSED("\x80\x02\x8b\xff\xff\xff\xff.", "more than the limit");
    REFUSED("\x80\x02X\xff\xff\xff\x3f"
            "a.",
            "ends inside opcode 0x58 (BINUNICODE)");
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    enum { DEEP = 200000 };
    uint8_t *bytes = malloc(DEEP);
    assert_non_null(bytes);
    memset(bytes, '(', DEEP);
    memcpy(bytes, "\x80\x02", 2);
    uint64_t offset = refused(bytes, DEEP, NULL, "nested deeper than 10000");
    assert_int_equal(offset, 2 + 10000);

    memset(bytes, ']', DEEP); /* lists in lists, without marks */
    memcpy(bytes, "\x80\x02", 2);
    memset(bytes + DEEP / 2 + 1, 'a', DEEP / 2 - 1);
    bytes[DEEP - 1] = '.';
    refused(bytes, DEEP, NULL, "is not the list");
    free(bytes);
}

static void dictionaries_in_dictionaries_do_not_recurse(void **state)
{
    (void)state;
    enum { DEEP = 50000 };
    static const char open[] = "}X\x08\0\0\0segments";
    size_t each = sizeof open - 1, count = 2 + DEEP * each + 1 + DEEP + 1;
    char *bytes = malloc(count), *at = bytes + 2;
    assert_non_null(bytes);
    memcpy(bytes, "\x80\x02", 2);
    for (int i = 0; i < DEEP; i++, at += each) memcpy(at, open, each);
    *at++ = 'N';
    memset(at, 's', DEEP);
    at[DEEP] = '.';
    refused(bytes, count, NULL, "neither \"device_traces\" nor \"segments\"");
    free(bytes);
}

static void limits_bound_values_memo_and_strings(void **state)
{
    (void)state;
    trace_limits few = trace_limits_default;
    few.memo = few.stack = 100;
    uint8_t bytes[1000] = { 0x80, 2 };
    memset(bytes + 2, 'N', sizeof bytes - 2);
    assert_int_equal(refused(bytes, sizeof bytes, &few, "more than 100 values on the stack"), 102);

    memset(bytes + 2, 0x94, sizeof bytes - 2);
    bytes[2] = '}';
    refused(bytes, sizeof bytes, &few, "memo index 100 is out of range");

    for (size_t i = 2; i + 4 < sizeof bytes; i += 4)
        memcpy(bytes + i, (uint8_t[]){ 'M', (uint8_t)i, (uint8_t)(i >> 8), 0x94 }, 4);
    refused(bytes, sizeof bytes, &few, "limit");

    trace_limits short_strings = trace_limits_default;
    short_strings.string_bytes = 1000;
    for (size_t i = 2; i + 8 < sizeof bytes; i += 9)
        memcpy(bytes + i, (uint8_t[]){ 0x8c, 6, (uint8_t)i, (uint8_t)(i >> 8), 'a', 'b', 'c', 'd', '0' }, 9);
    refused(bytes, sizeof bytes, &short_strings, "distinct strings of more than 1000 bytes");
}

static void a_container_in_itself_is_refused(void **state)
{
    (void)state;
    REFUSED("\x80\x02]q\0h\0a.", "is not the list");
    REFUSED("\x80\x02}q\0X\x08\0\0\0segmentsh\0s.", "\"segments\" is shared");
    REFUSED("\x80\x02]q\0h\0N\x61.", "needs a new list"); /* filling one that comes from the memo */
}

static void all_kinds_of_values_may_be_anywhere(void **state)
{
    (void)state;
    /* A dict whose unknown keys hold one of everything. */
    static const char bytes[] = "\x80\x05}(\x8c\x08segments]"
                                "\x8c\x01"
                                "a\x8f(K\x01K\x02\x90" /* set */
                                "\x8c\x01"
                                "b(K\x01\x91" /* frozenset */
                                "\x8c\x01"
                                "c(K\x01K\x02K\x03t" /* tuples */
                                "\x8c\x01"
                                "d)"
                                "\x8c\x01"
                                "eN\x85"
                                "\x8c\x01"
                                "fNNN\x87"
                                "\x8c\x01"
                                "gB\x02\0\0\0xy"
                                "\x8c\x01hC\x01x" /* bytes */
                                "\x8c\x01i\x8e\x01\0\0\0\0\0\0\0x"
                                "\x8c\x01j\x96\x01\0\0\0\0\0\0\0x"
                                "\x8c\x01k\x8d\x01\0\0\0\0\0\0\0x"
                                "\x8c\x01lG?\xf0\0\0\0\0\0\0"
                                "\x8c\x01mF1.5\n" /* floats */
                                "\x8c\x01nI-12\n"
                                "\x8c\x01oI01\n"
                                "\x8c\x01pL123456789012345678901234567890L\n"
                                "\x8c\x01q\x8a\x0a\0\0\0\0\0\0\0\0\0\x01"
                                "\x8c\x01r\x8b\x01\0\0\0\x07"
                                "\x8c\x01s\x8a\0"
                                "\x8c\x01tV\\u00e9\\U0001F600\xe9\n"
                                "\x8c\x01uS'a\\n\\x41\\''\n"
                                "\x8c\x01vT\x01\0\0\0x"
                                "\x8c\x01wU\x01x"
                                "\x8c\x01x]2"
                                "0"
                                "\x8c\x01y(K\x01(1"
                                "0"
                                "0]" /* DUP, POP, POP_MARK */
                                "\x8c\x01z\x88\x8c\x02zz\x89"
                                "\x95\x01\0\0\0\0\0\0\0"
                                "u.";
    trace t;
    trace_error e = { .text = "" };
    if (!read_exact(bytes, sizeof bytes - 1, NULL, &t, &e))
        fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
    assert_int_equal(t.count, 0);
    trace_release(&t);
}

static void bad_text_arguments_are_refused(void **state)
{
    (void)state;
    REFUSED("\x80\x02I12x\n.", "\"12x\" is not a decimal number");
    REFUSED("\x80\x02L\n.", "not a decimal number");
    REFUSED("\x80\x02"
            "F1.5.2\n.",
            "not followed by a number");
    REFUSED("\x80\x02V\\u12\n.", "bad quotes or escapes");
    REFUSED("\x80\x02V\\U00110000\n.", "bad quotes or escapes");
    REFUSED("\x80\x02V\\u00g0\n.", "bad quotes or escapes");
    REFUSED("\x80\x02V\\u00/0\n.", "bad quotes or escapes");
    REFUSED("\x80\x02S'\\x4'\n.", "bad quotes or escapes");
    REFUSED("\x80\x02Sabc\n.", "bad quotes or escapes");
    REFUSED("\x80\x02S'abc\\'\n.", "bad quotes or escapes");
    REFUSED("\x80\x02S'\\q'\n.", "bad quotes or escapes");
    REFUSED("\x80\x02I1\x7f\n.", "\"1?\"");
    REFUSED("\x80\x02I\x1b[31m\n.", "\"?[31m\""); /* no byte of the file reaches a terminal unescaped */
}

static void a_decimal_fraction_has_less_than_64_characters(void **state)
{
    (void)state;
    trace t;
    char text[80] = "]F";
    memset(text + 2, '1', 63);
    memcpy(text + 65, "\n0.", 3);
    assert_true(read_exact(text, 68, NULL, &t, NULL));
    trace_release(&t);
    memcpy(text + 65, "1\n0.", 4);
    refused(text, 69, NULL, "not followed by a number");
}

static void very_long_strings_are_passed_over(void **state)
{
    (void)state;
    enum { LONG = 300000 }; /* more than the window holds */
    static const char head[] = "\x80\x02}(X\x01\0\0\0aX\xe0\x93\x04\0", tail[] = "X\x08\0\0\0segments]u.";
    size_t count = sizeof head - 1 + LONG + sizeof tail - 1;
    char *bytes = malloc(count);
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof head - 1);
    memset(bytes + sizeof head - 1, 'x', LONG);
    memcpy(bytes + sizeof head - 1 + LONG, tail, sizeof tail - 1);
    trace t;
    trace_error e = { .text = "" };
    if (!read_exact(bytes, count, NULL, &t, &e)) fail_msg("%s", e.text);
    trace_release(&t);
    free(bytes);
}

static void write_event(FILE *to, int number, bool memo)
{
    fprintf(to, "(dS'action'\nS'alloc'\nsS'addr'\nI%d\nsS'size'\nI512\nsS'stream'\nI0\nsS'frames'\n",
            512 * (number + 1));
    fprintf(to, "(l(dS'name'\nS'function_%d'\nsS'filename'\nS'/somewhere/file_%d.py'\nsS'line'\nI%d\ns", number, number,
            number + 1);
    if (memo) fprintf(to, "p%d\n", number);
    fputs("asa", to);
}

/* The stack of each event is of one frame, which only two events share. */
static void check_many_frames(bool memo)
{
    enum { FRAMES = 3000 }; /* what tells them apart grows several times */
    char *bytes = NULL, expected[80];
    size_t count = 0;
    FILE *to = open_memstream(&bytes, &count);
    assert_non_null(to);
    fputs("(dS'segments'\n(lsS'device_traces'\n(l(l", to);
    for (int i = 0; i < 2 * FRAMES; i++) write_event(to, i % FRAMES, memo);
    fputs("as.", to);
    assert_int_equal(fclose(to), 0);
    trace t;
    trace_error e = { .text = "" };
    if (!read_exact(bytes, count, NULL, &t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
    assert_int_equal(t.count, 2 * FRAMES);
    assert_int_equal(t.stacks.frame_count, FRAMES);
    for (int i = 0; i < 2 * FRAMES; i++) {
        snprintf(expected, sizeof expected, "/somewhere/file_%d.py:%d:function_%d", i % FRAMES, i % FRAMES + 1,
                 i % FRAMES);
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[t.stacks.of[i]]]], expected);
        assert_int_equal(t.stacks.of[i], t.stacks.of[i % FRAMES]);
    }
    trace_release(&t);
    free(bytes);
}

static void many_different_strings_are_told_apart(void **state)
{
    (void)state;
    check_many_frames(false);
}

static void many_different_frames_of_the_memo_are_told_apart(void **state)
{
    (void)state;
    check_many_frames(true);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A snapshot of one allocation, in protocol 0 but for `items`: what it has besides its action. */
#define ALLOCATION(items) "(dS'device_traces'\n(l(l(dS'action'\nS'alloc'\ns" items "aas."
#define PLACED(items) ALLOCATION("S'addr'\nI4096\nsS'size'\nI512\ns" items)
#define NAMED(name) PLACED("S'frames'\n(l(dS'filename'\nS'f'\nsS'line'\nI1\nsS'name'\n" name "sas")

static void read_allocation(const char *bytes, size_t count, trace *t)
{
    trace_error e = { .text = "" };
    if (!read_exact(bytes, count, NULL, t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
    assert_int_equal(t->count, 1);
}
#define READ_ALLOCATION(literal, t) read_allocation(literal, sizeof(literal) - 1, t)

static void check_name(const char *text, const char *expected)
{
    trace t;
    read_allocation(text, strlen(text), &t);
    assert_string_equal(t.stacks.frames[0], expected);
    trace_release(&t);
}

static void text_of_protocol_0_becomes_utf_8(void **state)
{
    (void)state;
    check_name(NAMED("Va\\u007f\\u0080\\u07fF\\u0800\\uffff\n"), "f:1:a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf");
    check_name(NAMED("V\\u20ac\\U00010000\\U0001f6bd\\U0010ffff\n"),
               "f:1:\xe2\x82\xac\xf0\x90\x80\x80\xf0\x9f\x9a\xbd\xf4\x8f\xbf\xbf");
    check_name(NAMED("Vna\xefve\\x\n"), "f:1:na\xc3\xafve\\x"); /* Latin-1, and a backslash that escapes nothing */
}

static void quoted_text_has_its_escapes_resolved(void **state)
{
    (void)state;
    check_name(NAMED("S'\\x6b\\x4E\\t\\'\\\"\\\\'\n"), "f:1:kN\t'\"\\");
    check_name(NAMED("S\"it's\"\n"), "f:1:it's");
    check_name(NAMED("S''\n"), "f:1:");
}

static void a_duplicate_is_the_value_on_top(void **state)
{
    (void)state;
    trace t;
    READ_ALLOCATION(PLACED("S'pool_id'\nI3\n2\x86s"), &t);
    assert_int_equal(t.events[0].pool[0], 3);
    assert_int_equal(t.events[0].pool[1], 3);
    trace_release(&t);
}

static void numbers_of_four_bytes_have_a_sign(void **state)
{
    (void)state;
    trace t;
    READ_ALLOCATION(ALLOCATION("S'addr'\nJ\x00\xf0\xff\xff"
                               "sS'size'\nJ\xff\xff\xff\x7fs"),
                    &t);
    assert_int_equal(t.events[0].address, UINT64_C(0xfffffffffffff000));
    assert_int_equal(t.events[0].size, INT32_MAX);
    trace_release(&t);
    REFUSED(ALLOCATION("S'addr'\nI4096\nsS'size'\nJ\xff\xff\xff\xffs"), "alloc event has no usable size");
}

static void numbers_of_any_length_have_a_sign(void **state)
{
    (void)state;
    trace t;
    READ_ALLOCATION(ALLOCATION("S'addr'\n\x8a\x02\x00\xf0"
                               "sS'size'\n\x8a\x03\x00\xf0\x00s"),
                    &t);
    assert_int_equal(t.events[0].address, UINT64_C(0xfffffffffffff000));
    assert_int_equal(t.events[0].size, 0xf000);
    trace_release(&t);
    READ_ALLOCATION(ALLOCATION("S'addr'\n\x8a\x09\x00\x00\x00\x00\x00\x00\x00\xf0\x00"
                               "sS'size'\nI1\ns"),
                    &t);
    assert_int_equal(t.events[0].address, UINT64_C(0xf000000000000000));
    trace_release(&t);
}

static void a_number_of_more_than_64_bits_is_no_size(void **state)
{
    (void)state;
    REFUSED(ALLOCATION("S'addr'\nI4096\nsS'size'\n\x8a\x0a\x01\0\0\0\0\0\0\0\0\x01s"), "no usable size");
    REFUSED(ALLOCATION("S'addr'\nI4096\nsS'size'\n\x8a\x09\x01\0\0\0\0\0\0\0\x01s"), "no usable size");
    REFUSED(ALLOCATION("S'addr'\nI4096\nsS'size'\nL18446744073709551616L\ns"), "no usable size");
    REFUSED(ALLOCATION("S'addr'\nI4096\nsS'size'\nL-9223372036854775809L\ns"), "no usable size");
}

static void only_a_long_ends_in_l(void **state)
{
    (void)state;
    trace t;
    READ_ALLOCATION(ALLOCATION("S'addr'\nL4096L\nsS'size'\nL512\ns"), &t);
    assert_int_equal(t.events[0].address, 4096);
    assert_int_equal(t.events[0].size, 512);
    trace_release(&t);
    REFUSED(ALLOCATION("S'addr'\nI4096L\ns"), "\"4096L\" is not a decimal number");
}

static void the_memo_keeps_numbers_too(void **state)
{
    (void)state;
    trace t;
    READ_ALLOCATION(ALLOCATION("S'addr'\nI4096\np0\nsS'size'\nI512\np1\nsS'stream'\ng0\nsS'time_us'\ng1\ns"), &t);
    assert_int_equal(t.events[0].stream, 4096);
    assert_int_equal(t.events[0].time_ns, 512000);
    trace_release(&t);
}

/* As Python 2 did. */
static void a_memo_may_be_numbered_from_1(void **state)
{
    (void)state;
    trace t;
    assert_true(read_exact("]q\1.", 4, NULL, &t, NULL));
    assert_int_equal(t.live_count, 0);
    trace_release(&t);
}

static void no_segments_at_all_take_two_bytes(void **state)
{
    (void)state;
    trace t;
    assert_true(read_exact("].", 2, NULL, &t, NULL));
    assert_string_equal(t.format, "pytorch-snapshot");
    trace_release(&t);
    REFUSED("]", "neither a PyTorch memory snapshot (pickle)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_protocol_and_shape_reads_the_same),
        cmocka_unit_test(a_pickle_cut_anywhere_is_refused_with_an_offset),
        cmocka_unit_test(a_pickle_with_any_byte_changed_is_read_or_refused),
        cmocka_unit_test(code_is_refused_by_opcode_and_offset),
        cmocka_unit_test(unknown_opcodes_and_protocols_are_refused),
        cmocka_unit_test(the_stack_cannot_be_dug_under),
        cmocka_unit_test(marks_must_match),
        cmocka_unit_test(memo_indices_are_checked),
        cmocka_unit_test(sizes_over_the_limit_are_refused_before_they_are_read),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(dictionaries_in_dictionaries_do_not_recurse),
        cmocka_unit_test(limits_bound_values_memo_and_strings),
        cmocka_unit_test(a_container_in_itself_is_refused),
        cmocka_unit_test(all_kinds_of_values_may_be_anywhere),
        cmocka_unit_test(bad_text_arguments_are_refused),
        cmocka_unit_test(a_decimal_fraction_has_less_than_64_characters),
        cmocka_unit_test(very_long_strings_are_passed_over),
        cmocka_unit_test(many_different_strings_are_told_apart),
        cmocka_unit_test(many_different_frames_of_the_memo_are_told_apart),
        cmocka_unit_test(text_of_protocol_0_becomes_utf_8),
        cmocka_unit_test(quoted_text_has_its_escapes_resolved),
        cmocka_unit_test(a_duplicate_is_the_value_on_top),
        cmocka_unit_test(numbers_of_four_bytes_have_a_sign),
        cmocka_unit_test(numbers_of_any_length_have_a_sign),
        cmocka_unit_test(a_number_of_more_than_64_bits_is_no_size),
        cmocka_unit_test(only_a_long_ends_in_l),
        cmocka_unit_test(the_memo_keeps_numbers_too),
        cmocka_unit_test(a_memo_may_be_numbered_from_1),
        cmocka_unit_test(no_segments_at_all_take_two_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
