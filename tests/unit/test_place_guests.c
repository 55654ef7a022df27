/*
 * Streams that share addresses: placing with known lives, learning it from a history, and lending blocks to a running
 * program whose streams then wait for each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "capture_support.h"
#include "device/plan.h"
#include "device_support.h"
#include "learn_support.h"
#include "meanwhile_support.h"
#include "observe/plan.h"
#include "pool/plan/learn.h"
#include "pool/plan/place_guests.h"
#include "pool_support.h"
#include "random_support.h"
#include "weir/plan.h"

#include <pthread.h>

/* ---- placing ----------------------------------------------------------------------------------------------------- */

/* Blocks in one range of addresses do not overlap, and lie below its size. */
static void assert_sound(const wr_guest_item *items, uint32_t count, const uint64_t *bytes, uint32_t host)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t line = items[i].lent ? host : items[i].stream;
        assert_true(items[i].item.offset + items[i].item.bytes <= bytes[line]);
        for (uint32_t k = 0; k < i; k++) {
            const wr_item *a = &items[i].item, *b = &items[k].item;
            if (line == (items[k].lent ? host : items[k].stream) && meet(a, b, count) && overlap(a, b))
                fail_msg("items %u and %u overlap", i, k);
        }
    }
}

static void a_guest_borrows_what_it_needs_when_the_host_is_not_full(void **state)
{
    (void)state;
    uint32_t host = 9;
    uint64_t bytes[2], alone[2];
    wr_guest_item items[] = {
        { .item = { 512, 0, 0, 0 }, .stream = 1 },  /* always: the guest's own */
        { .item = { 4096, 0, 1, 2 }, .stream = 0 }, /* the host's peak */
        { .item = { 2048, 0, 2, 3 }, .stream = 1 }, /* when the host has nothing */
        { .item = { 512, 0, 3, 4 }, .stream = 0 },
    };
    assert_ok(wr_place_guests(items, 4, 2, UNLIMITED, bytes, alone, &host));
    assert_int_equal(host, 0);
    assert_int_equal(alone[0], 4096);
    assert_int_equal(alone[1], 512 + 2048);
    assert_false(items[0].lent);
    assert_true(items[2].lent);
    assert_int_equal(bytes[0], 4096);
    assert_int_equal(bytes[1], 512);
    assert_sound(items, 4, bytes, host);
}

static void a_guest_that_is_fullest_when_the_host_is_has_its_own_addresses(void **state)
{
    (void)state;
    uint32_t host = 9;
    uint64_t bytes[2], alone[2];
    wr_guest_item items[] = { { .item = { 4096, 0, 0, 0 }, .stream = 1 }, { .item = { 512, 0, 1, 1 }, .stream = 0 } };
    assert_ok(wr_place_guests(items, 2, 2, UNLIMITED, bytes, alone, &host));
    assert_int_equal(host, 1);
    assert_false(items[0].lent || items[1].lent);
    assert_int_equal(bytes[0], 512);
    assert_int_equal(bytes[1], 4096);
}

static void a_guest_that_borrows_all_has_no_addresses_of_its_own(void **state)
{
    (void)state;
    uint32_t host = 9;
    uint64_t bytes[2] = { 7, 7 }, alone[2];
    wr_guest_item items[] = { { .item = { 4096, 0, 0, 1 }, .stream = 0 }, { .item = { 512, 0, 1, 2 }, .stream = 1 } };
    assert_ok(wr_place_guests(items, 2, 2, UNLIMITED, bytes, alone, &host));
    assert_true(items[1].lent);
    assert_int_equal(bytes[0], 4096);
    assert_int_equal(bytes[1], 0);
}

static void it_does_not_matter_what_was_lent_before(void **state)
{
    (void)state;
    uint32_t host = 9;
    uint64_t bytes[2], alone[2];
    wr_guest_item items[] = { { .item = { 4096, 0, 0, 0 }, .stream = 0, .lent = true },
                              { .item = { 512, 0, 1, 1 }, .stream = 1, .lent = true } };
    assert_ok(wr_place_guests(items, 2, 2, UNLIMITED, bytes, alone, &host));
    assert_false(items[0].lent || items[1].lent);
    assert_int_equal(bytes[0], 4096);
    assert_int_equal(bytes[1], 512);
}

static void where_a_record_cannot_be_made_nothing_is_placed(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    uint32_t host = 9;
    uint64_t bytes[2], alone[2];
    wr_guest_item items[] = { { .item = { 512, 1, 0, 0 }, .stream = 1 }, { .item = { 4096, 1, 1, 1 }, .stream = 0 } };
    for (uint64_t nth = 1; status != WEIR_OK; nth++) {
        assert_status(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
        assert_int_equal(wr_meta_live(), before);
        wr_meta_fail_nth(nth);
        status = wr_place_guests(items, 2, 2, UNLIMITED, bytes, alone, &host);
    }
    wr_meta_fail_nth(0);
    for (int i = 0; i < 2; i++) assert_int_equal(items[i].item.offset, 0);
}

enum { COUNT = 200, STREAMS = 3 };

static void make_random_lives(wr_guest_item items[COUNT], uint32_t *random)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t a = next_random(random) >> 8, b = next_random(random) >> 8;
        items[i] = (wr_guest_item){ .item = { 512 * (1 + a % 64), 7, i, (i + 1 + b % 40) % COUNT },
                                    .stream = b / 64 % 7 % STREAMS };
    }
}

static void random_lives_of_three_streams_lie_apart(void **state)
{
    (void)state;
    uint32_t random = 11;
    for (int run = 0; run < 10; run++) {
        wr_guest_item items[COUNT];
        uint64_t bytes[STREAMS], alone[STREAMS];
        uint32_t host = 9, lent = 0;
        make_random_lives(items, &random);
        assert_ok(wr_place_guests(items, COUNT, STREAMS, UNLIMITED, bytes, alone, &host));
        assert_true(host < STREAMS);
        assert_sound(items, COUNT, bytes, host);
        for (uint32_t i = 0; i < COUNT; i++) {
            lent += items[i].lent;
            assert_false(items[i].lent && items[i].stream == host);
        }
        assert_true(lent > 0);
    }
}

/* What lives at a step, on all streams or one. */
static uint64_t live_at(const wr_guest_item items[COUNT], uint32_t stream, uint32_t step)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        if ((stream == STREAMS || items[i].stream == stream) && lives_at(&items[i].item, step))
            live += items[i].item.bytes;
    return live;
}

/* The stream has a right to as much as it holds when most is live in all. */
static uint64_t room_of(const wr_guest_item items[COUNT], uint32_t stream)
{
    uint32_t fullest = 0;
    for (uint32_t step = 1; step < COUNT; step++)
        if (live_at(items, STREAMS, step) > live_at(items, STREAMS, fullest)) fullest = step;
    return live_at(items, stream, fullest);
}

static bool is_kept_before(const wr_guest_item *a, const wr_guest_item *b)
{
    const uint32_t lives = wr_item_life(&a->item, COUNT), other = wr_item_life(&b->item, COUNT);
    return a->stream == b->stream && !a->lent && (lives > other || (lives == other && a->item.start < b->item.start));
}

/* The most that lives, while the item does, of what its stream keeps and chose before it. */
static uint64_t most_beside(const wr_guest_item items[COUNT], const wr_guest_item *item)
{
    uint64_t most = 0;
    for (uint32_t step = 0; step < COUNT; step++) {
        uint64_t now = 0;
        for (uint32_t i = 0; lives_at(&item->item, step) && i < COUNT; i++)
            if (lives_at(&items[i].item, step) && is_kept_before(&items[i], item)) now += items[i].item.bytes;
        most = now > most ? now : most;
    }
    return most;
}

static void a_guest_keeps_its_longest_lived_blocks_as_far_as_its_room_goes(void **state)
{
    (void)state;
    uint32_t random = 3;
    for (int run = 0; run < 3; run++) {
        wr_guest_item items[COUNT];
        uint64_t bytes[STREAMS], alone[STREAMS], room[STREAMS];
        uint32_t host = 9;
        make_random_lives(items, &random);
        for (uint32_t k = 0; k < STREAMS; k++) room[k] = room_of(items, k);
        assert_ok(wr_place_guests(items, COUNT, STREAMS, UNLIMITED, bytes, alone, &host));
        for (uint32_t i = 0; i < COUNT; i++)
            if (items[i].stream != host)
                assert_int_equal(items[i].lent,
                                 most_beside(items, &items[i]) + items[i].item.bytes > room[items[i].stream]);
    }
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

enum { SMALL_ONES = 20 };

static void add_block(tape *t, uint64_t address, uint64_t bytes, uint64_t stream)
{
    add(t, WEIR_EVENT_ALLOC, address, bytes, stream);
    add(t, WEIR_EVENT_FREE_COMPLETED, address, bytes, stream);
}

/* Stream 1 is the host. Stream 2 has its large block before the host's, or else while the host has its own. */
static void add_round_of(tape *t, bool before, uint64_t host, uint64_t guest)
{
    for (uint64_t i = 0; i < SMALL_ONES; i++) add_block(t, 512, 512 * (1 + i * i), 1);
    for (uint64_t i = 0; i < SMALL_ONES; i++) add_block(t, 1024, 512 * (2 + i * i), 2);
    if (before) add_block(t, 2048, guest, 2);
    add(t, WEIR_EVENT_ALLOC, 4096, host, 1);
    if (!before) add_block(t, 2048, guest, 2);
    add(t, WEIR_EVENT_FREE_COMPLETED, 4096, host, 1);
}

static void add_round(tape *t, bool before)
{
    add_round_of(t, before, 4 << 20, 1 << 20);
}

/* A plan of so many rounds; the guest comes before the host where the string has a b. */
static weir_plan *learn(const char *rounds, const wr_arena_user **users)
{
    static tape t;
    weir_plan *plan = NULL;
    t.count = 0;
    for (; *rounds; rounds++) add_round(&t, *rounds == 'b');
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, users));
    assert_int_equal(plan->arena_count, 2);
    assert_int_equal((*users)[0].native, 1);
    assert_int_equal((*users)[1].native, 2);
    assert_int_equal((*users)[0].host, WR_ARENA_ALONE);
    return plan;
}

static void streams_that_repeat_together_share(void **state)
{
    (void)state;
    const wr_arena_user *users = NULL;
    weir_plan *plan = learn("bbb", &users);
    assert_int_equal(users[1].host, 0);
    assert_int_equal(users[0].own, 4 << 20);
    assert_int_equal(users[1].own, 0);
    assert_int_equal(plan->arenas[0].bytes, 4 << 20);
    assert_int_equal(plan->arenas[1].bytes, 4 << 20);
    assert_int_equal(plan->arenas[1].entries, SMALL_ONES + 1);
    assert_int_equal(plan->entries[plan->arenas[1].first].bytes, 512 * 2);
    wr_plan_destroy(plan);
}

/* The guest has a block of its own all the time. */
static void lent_places_are_counted_from_behind_the_guests_own(void **state)
{
    (void)state;
    static tape t;
    const wr_arena_user *users = NULL;
    weir_plan *plan = NULL;
    t.count = 0;
    for (int i = 0; i < 3; i++) {
        add(&t, WEIR_EVENT_ALLOC, 8192, 1 << 19, 2);
        add_round(&t, true);
        add(&t, WEIR_EVENT_FREE_COMPLETED, 8192, 1 << 19, 2);
    }
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(users[0].native, 2);
    assert_int_equal(users[0].host, 1);
    assert_int_equal(users[0].own, 1 << 19);
    assert_int_equal(plan->arenas[0].bytes, (4 << 20) + (1 << 19));
    const weir_plan_entry *own = &plan->entries[plan->arenas[0].first], *lent = own + SMALL_ONES + 1;
    assert_int_equal(own->offset, 0);
    assert_int_equal(lent->bytes, 1 << 20);
    assert_true(lent->offset >= users[0].own);
    wr_plan_destroy(plan);
}

static void streams_that_are_full_at_one_time_do_not_share(void **state)
{
    (void)state;
    const wr_arena_user *users = NULL;
    weir_plan *plan = learn("---", &users);
    assert_int_equal(users[1].host, WR_ARENA_ALONE);
    assert_int_equal(users[1].own, 1 << 20);
    wr_plan_destroy(plan);
}

/* Of 101 parts they would save one. */
static void streams_do_not_share_to_save_a_hundredth(void **state)
{
    (void)state;
    enum { PART = 512 * 1000 };
    for (int more = 0; more < 2; more++) {
        static tape t;
        const wr_arena_user *users = NULL;
        weir_plan *plan = NULL;
        t.count = 0;
        for (int i = 0; i < 3; i++) add_round_of(&t, true, 100 * PART, PART + 512 * (uint64_t)more);
        assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
        assert_int_equal(users[1].host, more ? 0 : WR_ARENA_ALONE);
        wr_plan_destroy(plan);
    }
}

/* Sharing saves what it needs at other times than the host. */
static void a_guest_with_less_allocations_than_a_round_must_have_shares(void **state)
{
    (void)state;
    static tape t;
    const wr_arena_user *users = NULL;
    weir_plan *plan = NULL;
    t.count = 0;
    for (int i = 0; i < 2; i++) {
        for (uint64_t k = 0; k < SMALL_ONES; k++) add_block(&t, 512, 512 * (1 + k * k), 1);
        add_block(&t, 2048, 1 << 20, 2);
        add_block(&t, 4096, 4 << 20, 1);
    }
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arena_count, 2);
    assert_int_equal(users[1].native, 2);
    assert_int_equal(users[1].host, 0);
    wr_plan_destroy(plan);
}

static void a_guest_with_few_allocations_is_not_planned_where_sharing_saves_nothing(void **state)
{
    (void)state;
    static tape t;
    const wr_arena_user *users = NULL;
    weir_plan *plan = NULL;
    t.count = 0;
    for (int i = 0; i < 2; i++) {
        for (uint64_t k = 0; k < SMALL_ONES; k++) add_block(&t, 512, 512 * (1 + k * k), 1);
        add(&t, WEIR_EVENT_ALLOC, 4096, 4 << 20, 1);
        add_block(&t, 2048, 1 << 20, 2);
        add(&t, WEIR_EVENT_FREE_COMPLETED, 4096, 4 << 20, 1);
    }
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arena_count, 1);
    assert_int_equal(users[0].native, 1);
    wr_plan_destroy(plan);
}

/* In a round each has less allocations than a round must have. */
static void streams_that_repeat_only_together_are_not_planned(void **state)
{
    (void)state;
    static tape t;
    t.count = 0;
    for (int i = 0; i < 2; i++)
        for (uint64_t k = 0; k < WR_LEARN_LEAST; k++) add_block(&t, 512, 512 * (1 + k), 1 + k % 2);
    assert_no_plan(&t, &SHARING);
}

static void streams_that_repeat_each_for_itself_do_not_share(void **state)
{
    (void)state;
    const wr_arena_user *users = NULL;
    weir_plan *plan = learn("-b--", &users);
    assert_int_equal(users[1].host, WR_ARENA_ALONE);
    wr_plan_destroy(plan);
}

/* Their requests are alike, so that only whose they are tells. */
static void streams_that_take_turns_otherwise_each_round_do_not_share(void **state)
{
    (void)state;
    static tape t;
    const wr_arena_user *users = NULL;
    weir_plan *plan = NULL;
    t.count = 0;
    for (const char *first = "112212"; *first; first++)
        for (uint64_t i = 0; i < 2 * SMALL_ONES; i++)
            add_block(&t, 512, 4096 * (1 + i / 2), 1 + (i + (*first == '2')) % 2);
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    for (uint64_t i = 0; i < plan->arena_count; i++) assert_int_equal(users[i].host, WR_ARENA_ALONE);
    wr_plan_destroy(plan);
}

/* ---- a running program ------------------------------------------------------------------------------------------- */

/* The guest's large block comes and goes before the host's. */
typedef struct program {
    weir_stream host, guest;
    char *lent, *large; /* of the last round */
} program;

enum { EDGE = 4096 };
#define LARGE (96 * MIB)
#define LENT (48 * MIB)

static void take_small(weir_stream stream)
{
    for (size_t i = 0; i < SMALL_ONES; i++) assert_ok(weir_free(alloc_on((1 + i) * 20000, stream)));
}

static void play_round(program *p)
{
    take_small(p->host);
    take_small(p->guest);
    p->lent = alloc_on(LENT, p->guest);
    write_pattern(p->lent, EDGE, 1);
    write_pattern(p->lent + LENT - EDGE, EDGE, 2);
    void *own = alloc_on(2 * MIB, p->host);
    assert_ok(weir_free(own));
    assert_true(has_pattern(p->lent, EDGE, 1) && has_pattern(p->lent + LENT - EDGE, EDGE, 2));
    assert_ok(weir_free(p->lent));
    p->large = alloc_on(LARGE, p->host);
    assert_ok(weir_free(p->large));
}

/* A round of the plan was served. */
static program start_on(weir_stream host, weir_stream guest)
{
    program p = { .host = host, .guest = guest };
    for (int i = 0; i < 2; i++) play_round(&p);
    assert_ok(weir_plan_learn(0));
    play_round(&p);
    return p;
}

static program start_program(void)
{
    return start_on(default_stream(0), new_stream(0));
}

/* The next round, up to the lent block. */
static char *borrow(const program *p)
{
    take_small(p->host);
    take_small(p->guest);
    return alloc_on(LENT, p->guest);
}

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 1024 * MIB, .history = 4096, .plan_share = 1 });
    return 0;
}

static bool is_idle(weir_stream stream)
{
    return weir_stream_query(stream) == WEIR_OK;
}

static bool share_memory(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void lent_blocks_take_no_memory_of_their_own(void **state)
{
    (void)state;
    program p = start_program();
    const weir_memory_stats before = stats_of(0);
    play_round(&p);
    assert_true(share_memory(p.lent, LENT, p.large, LARGE));
    assert_in_range(reserved_on(0), LARGE, LARGE + 4 * MIB);
    assert_int_equal(stats_of(0).plan_served - before.plan_served, 2 * SMALL_ONES + 3);
}

static void a_lent_block_is_a_hit(void **state)
{
    (void)state;
    program p = start_program();
    take_small(p.host);
    take_small(p.guest);
    const uint64_t hits = stats_of(0).hits;
    assert_ptr_equal(alloc_on(LENT, p.guest), p.lent);
    assert_int_equal(stats_of(0).hits - hits, 1);
    assert_ok(weir_free(p.lent));
}

static void a_guest_waits_for_the_host_and_the_host_for_the_guest(void **state)
{
    (void)state;
    program p = start_program();
    take_small(p.host);
    take_small(p.guest);
    hold(p.host);
    assert_true(is_idle(p.guest));
    char *lent = alloc_on(LENT, p.guest);
    assert_ptr_equal(lent, p.lent);
    assert_false(is_idle(p.guest));
    let_run(p.host);
    assert_ok(weir_stream_synchronize(p.guest));
    assert_ok(weir_free(alloc_on(2 * MIB, p.host)));
    hold(p.guest);
    assert_ok(weir_free(lent));
    assert_false(is_idle(p.host));
    assert_ptr_equal(alloc_on(LARGE, p.host), p.large); /* at once, because its work will wait */
    let_run(p.guest);
    assert_ok(weir_stream_synchronize(p.host));
}

static void a_lent_block_belongs_to_the_host_stream(void **state)
{
    (void)state;
    program p = start_program();
    char *lent = borrow(&p);
    assert_ptr_equal(lent, p.lent);
    assert_int_equal(info_of(lent).stream.id, p.host.id);
    assert_ok(weir_free(lent));
}

static void a_guest_goes_on_when_the_host_has_ended(void **state)
{
    (void)state;
    program p = start_on(new_stream(0), default_stream(0));
    char *lent = borrow(&p);
    write_pattern(lent, EDGE, 3);
    assert_ok(weir_stream_destroy(p.host));
    p.host = new_stream(0);
    assert_true(has_pattern(lent, EDGE, 3));
    assert_ok(weir_free(lent));
    for (int i = 0; i < 3; i++) play_round(&p);
}

/* The guest has 4 MiB of its own, and then borrows the first MiB of the host's. */
static void serve_lent_place(weir_stream host, weir_stream guest)
{
    const weir_plan_entry entries[] = { { 0, 2 * MIB, 1, 0 }, { 0, 4 * MIB, 1, 0 }, { 4 * MIB, MIB, 1, 0 } };
    const weir_plan_arena arenas[] = { { .streams = 1, .bytes = 2 * MIB, .entries = 1 },
                                       { .streams = 1, .bytes = 6 * MIB, .first = 1, .entries = 2 } };
    const wr_arena_user users[] = {
        { .native = (uint64_t)(uintptr_t)native_of(host), .own = 2 * MIB, .host = WR_ARENA_ALONE },
        { .native = (uint64_t)(uintptr_t)native_of(guest), .own = 4 * MIB, .host = 0 }
    };
    const weir_plan plan = { .arenas = arenas, .arena_count = 2, .entries = entries, .entry_count = 3 };
    assert_ok(wr_device_serve(device_0(), &plan, users));
}

static void a_lent_place_of_a_host_that_never_came_is_not_sought_among_the_guests_own(void **state)
{
    (void)state;
    weir_stream host = new_stream(0), guest = new_stream(0);
    serve_lent_place(host, guest);
    assert_ok(weir_free(alloc_on(4 * MIB, guest)));
    assert_ok(weir_free(alloc_on(MIB, guest)));
    assert_int_equal(stats_of(0).plan_served, 1);
    assert_int_equal(stats_of(0).plan_missed, 1);
}

/* A block that waits for a stream is a reason to look again. */
static void a_lent_place_that_is_in_use_is_not_sought_among_the_guests_own(void **state)
{
    (void)state;
    weir_stream host = new_stream(0), guest = new_stream(0), other = new_stream(0);
    void *waits = alloc_on(MIB, default_stream(0));
    make_busy(other);
    assert_ok(weir_record_stream(waits, other));
    assert_ok(weir_free(waits));
    serve_lent_place(host, guest);
    void *first = alloc_on(2 * MIB, host);
    assert_ok(weir_free(alloc_on(4 * MIB, guest)));
    assert_ok(weir_free(alloc_on(MIB, guest)));
    let_run(other);
    assert_int_equal(stats_of(0).plan_served, 2);
    assert_int_equal(stats_of(0).plan_late, 1);
    assert_ok(weir_free(first));
}

static void *miss(void *argument)
{
    return alloc_on(200 * MIB, *(weir_stream *)argument);
}

static void *give(void *block)
{
    assert_ok(weir_free(block));
    return NULL;
}

static void *end(void *argument)
{
    assert_ok(weir_stream_destroy(*(weir_stream *)argument));
    return NULL;
}

static void a_host_that_captures_lends_nothing(void **state)
{
    (void)state;
    program p = start_on(new_stream(0), new_stream(0));
    take_small(p.host);
    take_small(p.guest);
    weir_graph graph = begin_on(p.host);
    char *block = alloc_on(LENT, p.guest);
    assert_false(share_memory(block, LENT, p.large, LARGE));
    assert_ok(weir_free(block));
    end_unharmed(graph, p.host);
}

static void a_place_that_a_capturing_host_does_not_lend_is_late(void **state)
{
    (void)state;
    program p = start_on(new_stream(0), new_stream(0));
    take_small(p.host);
    take_small(p.guest);
    const uint64_t late = stats_of(0).plan_late;
    weir_graph graph = begin_on(p.host);
    assert_ok(weir_free(alloc_on(LENT, p.guest)));
    assert_int_equal(stats_of(0).plan_late - late, 1);
    end_unharmed(graph, p.host);
}

/* Another thread, in the driver, keeps both waiting. A lent block is freed meanwhile, and the host destroyed, whose
 * work had been waited for before. So the block's place waits for work that is not over. */
static void a_host_that_ends_while_a_lent_block_is_freed_is_waited_for(void **state)
{
    (void)state;
    enum { THREADS = 3, MISS_NS = 300000000 };
    const struct timespec a_while = { 0, MISS_NS / 6 };
    program p = start_on(new_stream(0), new_stream(0));
    weir_stream other = new_stream(0), heir = default_stream(0);
    slow_work work = { .milliseconds = 1 };
    pthread_t threads[THREADS];
    char *lent = borrow(&p);
    hold(p.guest);
    start_slow_work(p.guest, &work);
    assert_ok(weir_host_latency(WEIR_BACKEND_vm_create, MISS_NS));
    void *(*const what[THREADS])(void *) = { miss, give, end };
    void *const of[THREADS] = { &other, lent, &p.host };
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, what[i], of[i]), 0);
        nanosleep(&a_while, NULL);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(weir_host_latency(WEIR_BACKEND_vm_create, 0));
    assert_false(atomic_load(&work.done));
    const char *again = alloc_on(4 * MIB, heir);
    assert_true(!share_memory(lent, LENT, again, 4 * MIB) || !is_idle(heir));
    let_run(p.guest);
}

static void a_lent_block_may_be_freed_when_the_guest_has_ended(void **state)
{
    (void)state;
    program p = start_program();
    char *lent = borrow(&p);
    assert_ptr_equal(lent, p.lent);
    assert_ok(weir_stream_destroy(p.guest));
    assert_ok(weir_free(lent));
    assert_ok(weir_free(alloc_on(2 * MIB, p.host)));
    assert_ptr_equal(alloc_on(LARGE, p.host), p.large);
}

static void *borrow_for_one_that_ends(void *guest)
{
    void *block = NULL;
    assert_status(weir_alloc_on(LENT, *(weir_stream *)guest, &block), WEIR_ERR_INVALID_STREAM);
    assert_null(block);
    return NULL;
}

/* It ends while the request asks the driver whether a block's other stream is done. */
static void nothing_is_lent_to_a_guest_that_ends_meanwhile(void **state)
{
    (void)state;
    void *used = alloc_on(4 * MIB, new_stream(0));
    program p = start_program();
    pthread_t thread;
    take_small(p.host);
    take_small(p.guest);
    make_busy(p.host);
    assert_ok(weir_record_stream(used, p.host));
    assert_ok(weir_free(used));
    start_slowly(&thread, borrow_for_one_that_ends, &p.guest, WEIR_BACKEND_event_query);
    assert_ok(weir_stream_destroy(p.guest));
    pthread_join(thread, NULL);
    let_run(p.host);
}

static void nothing_is_queued_for_a_guest_that_ends_meanwhile(void **state)
{
    (void)state;
    void *used = alloc_on(4 * MIB, new_stream(0));
    program p = start_program();
    pthread_t thread;
    take_small(p.host);
    take_small(p.guest);
    make_busy(p.host);
    assert_ok(weir_record_stream(used, p.host));
    assert_ok(weir_free(used));
    start_slowly(&thread, borrow_for_one_that_ends, &p.guest, WEIR_BACKEND_event_query);
    assert_ok(weir_stream_destroy(p.guest));
    const uint64_t recorded = calls_of(WEIR_BACKEND_event_record);
    pthread_join(thread, NULL);
    const uint64_t since = calls_of(WEIR_BACKEND_event_record) - recorded;
    let_run(p.host);
    assert_int_equal(since, 0);
}

static void a_place_that_the_guest_cannot_wait_for_is_not_lent(void **state)
{
    (void)state;
    program p = start_program();
    take_small(p.host);
    take_small(p.guest);
    const weir_memory_stats before = stats_of(0);
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_wait, 1, WEIR_ERR_DRIVER));
    char *instead = alloc_on(LENT, p.guest);
    assert_ok(weir_host_fail_clear());
    assert_false(share_memory(instead, LENT, p.large, LARGE));
    assert_int_equal(stats_of(0).plan_served, before.plan_served);
    assert_int_equal(stats_of(0).plan_late - before.plan_late, 1);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    assert_ok(weir_free(instead));
}

static void *borrow_meanwhile(void *guest)
{
    return alloc_on(LENT, *(weir_stream *)guest);
}

/* The program frees what was lent to it the last time once more, while it is just being lent to it again. */
static void a_place_that_is_freed_in_error_while_it_is_lent_is_freed_once(void **state)
{
    (void)state;
    program p = start_program();
    pthread_t thread;
    void *instead = NULL;
    take_small(p.host);
    take_small(p.guest);
    start_slowly(&thread, borrow_meanwhile, &p.guest, WEIR_BACKEND_stream_wait);
    assert_ok(weir_free(p.lent));
    pthread_join(thread, &instead);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(instead));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

static void a_host_that_is_early_does_not_get_lent_memory(void **state)
{
    (void)state;
    program p = start_program();
    char *lent = borrow(&p);
    write_pattern(lent, EDGE, 5);
    assert_ok(weir_free(alloc_on(2 * MIB, p.host)));
    char *large = alloc_on(LARGE, p.host);
    assert_false(share_memory(lent, LENT, large, LARGE));
    write_pattern(large, EDGE, 6);
    assert_true(has_pattern(lent, EDGE, 5));
    assert_ok(weir_free(lent));
    assert_ok(weir_free(large));
}

#define GUEST_TEST(test) cmocka_unit_test_setup_teardown(test, open_recording, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_borrows_what_it_needs_when_the_host_is_not_full),
        cmocka_unit_test(a_guest_that_is_fullest_when_the_host_is_has_its_own_addresses),
        cmocka_unit_test(a_guest_that_borrows_all_has_no_addresses_of_its_own),
        cmocka_unit_test(it_does_not_matter_what_was_lent_before),
        cmocka_unit_test(where_a_record_cannot_be_made_nothing_is_placed),
        cmocka_unit_test(random_lives_of_three_streams_lie_apart),
        cmocka_unit_test(a_guest_keeps_its_longest_lived_blocks_as_far_as_its_room_goes),
        cmocka_unit_test(streams_that_repeat_together_share),
        cmocka_unit_test(lent_places_are_counted_from_behind_the_guests_own),
        cmocka_unit_test(streams_that_are_full_at_one_time_do_not_share),
        cmocka_unit_test(streams_do_not_share_to_save_a_hundredth),
        cmocka_unit_test(a_guest_with_less_allocations_than_a_round_must_have_shares),
        cmocka_unit_test(a_guest_with_few_allocations_is_not_planned_where_sharing_saves_nothing),
        cmocka_unit_test(streams_that_repeat_only_together_are_not_planned),
        cmocka_unit_test(streams_that_repeat_each_for_itself_do_not_share),
        cmocka_unit_test(streams_that_take_turns_otherwise_each_round_do_not_share),
        GUEST_TEST(lent_blocks_take_no_memory_of_their_own),
        GUEST_TEST(a_lent_block_is_a_hit),
        GUEST_TEST(a_guest_waits_for_the_host_and_the_host_for_the_guest),
        GUEST_TEST(a_lent_block_belongs_to_the_host_stream),
        GUEST_TEST(a_guest_goes_on_when_the_host_has_ended),
        GUEST_TEST(a_host_that_ends_while_a_lent_block_is_freed_is_waited_for),
        GUEST_TEST(a_lent_block_may_be_freed_when_the_guest_has_ended),
        GUEST_TEST(nothing_is_lent_to_a_guest_that_ends_meanwhile),
        GUEST_TEST(a_place_that_is_freed_in_error_while_it_is_lent_is_freed_once),
        GUEST_TEST(nothing_is_queued_for_a_guest_that_ends_meanwhile),
        GUEST_TEST(a_place_that_the_guest_cannot_wait_for_is_not_lent),
        GUEST_TEST(a_lent_place_of_a_host_that_never_came_is_not_sought_among_the_guests_own),
        GUEST_TEST(a_lent_place_that_is_in_use_is_not_sought_among_the_guests_own),
        GUEST_TEST(a_host_that_captures_lends_nothing),
        GUEST_TEST(a_place_that_a_capturing_host_does_not_lend_is_late),
        GUEST_TEST(a_host_that_is_early_does_not_get_lent_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
