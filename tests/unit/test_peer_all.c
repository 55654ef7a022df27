#include "unit/peer_support.h"

#include <stdio.h>

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint64_t draw_size(void)
{
    switch (draw(8)) {
    case 0: return 1 + draw(512);
    case 1:
    case 2: return 1 + draw(64 * KIB);
    case 3: return MIB - 600 + draw(1200); /* where small ends, for many */
    case 4:
    case 5: return 1 + draw(24 * MIB);
    case 6: return (1 + draw(48)) * 2 * MIB;
    default: return 512 * (1 + draw(40));
    }
}

enum { LIVE = 400, STEPS = 6000, STREAMS = 3 };

/* What must hold for every allocator, whatever its rules. */
static void play(const char *text, uint64_t memory)
{
    uint64_t refused = 0;
    peer_open(text, memory);
    const peer *p = f.choice.peer;
    for (int step = 0; step < STEPS; step++) {
        const size_t slot = draw(LIVE);
        peer_held *h = &f.held[slot];
        if (!h->used) {
            refused += !peer_take(slot, draw_size(), (uint32_t)draw(STREAMS));
        } else if (!h->later && p->begin_use && draw(8) == 0) {
            p->begin_use(f.self, &h->at, h->stream);
            h->later = true;
        } else {
            peer_give(slot);
        }
        if (draw(1500) == 0 && p->empty) p->empty(f.self);
        if (step % 50 == 0) peer_check();
    }
    peer_check();
    for (size_t slot = 0; slot < LIVE; slot++)
        if (f.held[slot].used) peer_give(slot);
    peer_check();
    assert_true(memory < GIB || refused == 0);
    peer_close();
}

static void blocks_are_mapped_aligned_and_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        seed = 88172645463325252u + i;
        play(peer_at(i)->name, 80 * GIB);
    }
}

static void blocks_are_apart_when_memory_is_short_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        seed = 1181783497276652981u + i;
        play(peer_at(i)->name, 512 * MIB);
        play(peer_at(i)->name, 64 * MIB);
    }
}

static void all_cached_memory_serves_before_a_request_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        /* An allocator with a fixed pool gets half of the device. */
        peer_open(strcmp(peer_at(i)->name, "rmm-arena") == 0 ? "rmm-arena:size=1GiB" : peer_at(i)->name, GIB);
        for (size_t slot = 0; slot < 8; slot++) peer_get(slot, 100 * MIB, 0);
        for (size_t slot = 0; slot < 8; slot++) peer_give(slot);
        assert_true(peer_take(0, 300 * MIB, 0));
        peer_check();
        peer_close();
    }
}

static void emptying_leaves_nothing_when_nothing_is_in_use(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        if (!peer_at(i)->empty) continue;
        peer_open(peer_at(i)->name, GIB);
        for (size_t slot = 0; slot < 20; slot++) peer_get(slot, (slot + 1) * MIB + 512, slot % STREAMS);
        for (size_t slot = 0; slot < 20; slot++) peer_give(slot);
        f.choice.peer->empty(f.self);
        assert_int_equal(f.driver.used, 0);
        peer_check();
        peer_close();
    }
}

static void more_than_the_device_has_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        peer_open(peer_at(i)->name, 256 * MIB);
        peer_get(0, MIB, 0);
        assert_false(peer_take(1, 256 * MIB, 0));
        peer_check();
        assert_true(peer_take(1, 2 * MIB, 0));
        peer_check();
        peer_close();
    }
}

static void every_option_has_a_meaning_and_a_default_within_its_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        const peer *p = peer_at(i);
        assert_true(p->about && strlen(p->about) > 10);
        for (const peer_option *o = p->options; o < p->options + PEER_OPTIONS && o->name; o++) {
            assert_true(o->about && strlen(o->about) > 5);
            assert_true(o->least <= o->standard && o->standard <= o->most);
        }
    }
}

static bool bounds(const peer_option *above, const peer_option *below)
{
    return below->at_most && strcmp(below->at_most, above->name) == 0;
}

/* An option, and another that it must not exceed, or fall below, at its extremes. */
static void play_with(const peer *p, const peer_option *one, uint64_t value)
{
    char text[200];
    int used = snprintf(text, sizeof text, "%s:%s=%llu", p->name, one->name, (unsigned long long)value);
    for (const peer_option *o = p->options; o < p->options + PEER_OPTIONS && o->name; o++)
        if (bounds(o, one) || bounds(one, o))
            used += snprintf(text + used, sizeof text - (size_t)used, ",%s=%llu", o->name,
                             (unsigned long long)(bounds(o, one) ? o->most : o->least));
    play(text, 512 * MIB);
}

static void extreme_options_keep_the_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < peer_count(); i++) {
        const peer *p = peer_at(i);
        for (const peer_option *o = p->options; o < p->options + PEER_OPTIONS && o->name; o++) {
            seed = 3 + i;
            play_with(p, o, o->least);
            play_with(p, o, o->most);
        }
    }
}

static void options_that_bound_each_other_are_in_order(void **state)
{
    (void)state;
    peer_choice choice;
    char error[400];
    assert_false(peer_choose("cub:min-bin=9,max-bin=3", &choice, error, sizeof error));
    assert_string_equal(error, "policy 'cub': min-bin is 9, more than max-bin, which is 3");
    assert_false(peer_choose("cub:min-bin=8", &choice, error, sizeof error));
    assert_true(peer_choose("cub:min-bin=3,max-bin=3", &choice, error, sizeof error));
    assert_false(peer_choose("rmm-pool:initial=2GiB,maximum=1GiB", &choice, error, sizeof error));
    assert_true(peer_choose("rmm-pool:maximum=1GiB", &choice, error, sizeof error));
}

static void wrong_options_are_named_with_those_that_there_are(void **state)
{
    (void)state;
    peer_choice choice;
    char error[400];
    assert_false(peer_choose("torch-expandable:pages=2MiB", &choice, error, sizeof error));
    assert_non_null(strstr(error, "no option 'pages'"));
    assert_non_null(strstr(error, "with one of: small-page, page"));
    assert_false(peer_choose("torch-expandable:page=1KiB", &choice, error, sizeof error));
    assert_non_null(strstr(error, "page '1KiB' is not a size from 2097152 to 1073741824 bytes"));
    assert_false(peer_choose("torch-expandable:page", &choice, error, sizeof error));
    assert_false(peer_choose("torch-expandable:", &choice, error, sizeof error));
    assert_false(peer_choose("torch-expandable:pag=32MiB", &choice, error, sizeof error));
    assert_false(peer_choose("torch-expand", &choice, error, sizeof error));
    assert_false(peer_choose("async:threshold=1GiB,,", &choice, error, sizeof error));
    assert_true(peer_choose("torch-expandable:page=32MiB,small-page=4M", &choice, error, sizeof error));
    assert_int_equal(choice.values[0], 4 * MIB);
    assert_int_equal(choice.values[1], 32 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_mapped_aligned_and_apart),
        cmocka_unit_test(blocks_are_apart_when_memory_is_short_too),
        cmocka_unit_test(all_cached_memory_serves_before_a_request_fails),
        cmocka_unit_test(emptying_leaves_nothing_when_nothing_is_in_use),
        cmocka_unit_test(more_than_the_device_has_is_refused),
        cmocka_unit_test(every_option_has_a_meaning_and_a_default_within_its_range),
        cmocka_unit_test(extreme_options_keep_the_rules),
        cmocka_unit_test(options_that_bound_each_other_are_in_order),
        cmocka_unit_test(wrong_options_are_named_with_those_that_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
