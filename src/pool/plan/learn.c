#include "pool/plan/learn_internal.h"

#include "base/hash.h"
#include "base/meta.h"

#include <assert.h>

/* ---- births, from the events ------------------------------------------------------------------------------------- */

/* Numbers of keys: a table with open addressing. Of an address, the number plus one of the birth that lives there; of a
 * stream, that of its line; 0: none yet. */
typedef struct numbers {
    uint64_t *key;
    uint32_t *number;
    unsigned shift;
    size_t mask;
} numbers;

static weir_status numbers_init(numbers *n, size_t keys)
{
    void *memory = NULL;
    size_t capacity = 64;
    unsigned shift = 58;
    for (; capacity < 2 * keys; shift--) capacity *= 2;
    WR_TRY(wr_meta_alloc(capacity * (sizeof(uint64_t) + sizeof(uint32_t)), "history to learn from", &memory));
    *n = (numbers){ .key = memory,
                    .number = (uint32_t *)(void *)((uint64_t *)memory + capacity),
                    .shift = shift,
                    .mask = capacity - 1 };
    return WEIR_OK;
}

static uint32_t *number_of(const numbers *n, uint64_t key)
{
    size_t i = (size_t)(wr_hash(key) >> n->shift);
    while (n->number[i] != 0 && n->key[i] != key) i = (i + 1) & n->mask;
    n->key[i] = key;
    return &n->number[i];
}

static bool is_of_default_pool(const weir_event *e)
{
    return e->pool[0] == 0 && e->pool[1] == 0;
}

static void read_events(wr_learner *l, const numbers *at, const weir_event *events, size_t count)
{
    const wr_learn_options *o = l->options;
    for (size_t i = 0; i < count; i++) {
        const weir_event *e = &events[i];
        if (!is_of_default_pool(e)) continue;
        if (e->kind == WEIR_EVENT_ALLOC) {
            *number_of(at, e->address) = l->count + 1;
            l->births[l->count++] = (wr_birth){ o->fit(o->user, (size_t)e->size), e->stream, (uint32_t)i, UINT32_MAX };
        } else if (e->kind == WEIR_EVENT_FREE_COMPLETED) {
            const uint32_t number = *number_of(at, e->address);
            if (number && l->births[number - 1].end == UINT32_MAX) l->births[number - 1].end = (uint32_t)i;
        }
    }
}

/* Lists the allocations among the events, each with the event that ended it. */
static weir_status find_births(wr_learner *l, const weir_event *events, size_t count)
{
    void *births = NULL;
    numbers at;
    WR_TRY(wr_meta_alloc((count + 1) * sizeof(wr_birth), "history to learn from", &births));
    l->births = births;
    l->events = (uint32_t)count;
    WR_TRY(numbers_init(&at, count));
    read_events(l, &at, events, count);
    wr_meta_free(at.key);
    return WEIR_OK;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* Makes the lines, and counts the births of each. */
static weir_status count_lines(wr_learner *l, const numbers *of)
{
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        uint32_t *number = number_of(of, l->births[i].stream);
        if (*number == 0) {
            WR_TRY(wr_meta_grow(&l->lines, &capacity, l->line_count + 1, sizeof *l->lines, "streams to learn from"));
            l->lines[l->line_count++] = (wr_line){ .stream = l->births[i].stream };
            *number = (uint32_t)l->line_count;
        }
        assert(l->lines);
        l->lines[*number - 1].count++;
    }
    return WEIR_OK;
}

static weir_status list_lines(wr_learner *l, const numbers *of)
{
    void *memory = NULL;
    WR_TRY(
        wr_meta_alloc((2 * (size_t)l->count + l->line_count + 1) * sizeof(uint32_t), "streams to learn from", &memory));
    uint32_t *all = l->by_stream = memory, *begin = all + l->count, *next = begin + l->count;
    for (uint32_t k = 0, first = 0; k < l->line_count; first += l->lines[k++].count) {
        l->lines[k].at = begin + first;
        next[k] = first;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        all[i] = i;
        begin[next[*number_of(of, l->births[i].stream) - 1]++] = i;
    }
    l->all = (wr_line){ .at = all, .count = l->count };
    return WEIR_OK;
}

static weir_status find_lines(wr_learner *l)
{
    numbers of;
    WR_TRY(numbers_init(&of, l->count));
    weir_status status = count_lines(l, &of);
    if (status == WEIR_OK) status = list_lines(l, &of);
    wr_meta_free(of.key);
    return status;
}

/* ---- lives ------------------------------------------------------------------------------------------------------- */

static uint32_t births_before(const wr_learner *l, const wr_line *of, uint32_t event)
{
    uint32_t low = 0, high = of->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (l->births[of->at[middle]].event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t wr_learn_life_of(const wr_learner *l, const wr_line *of, uint32_t i)
{
    const uint32_t end = l->births[of->at[i]].end;
    return end == UINT32_MAX ? UINT32_MAX : births_before(l, of, end) - i;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Whether the allocations i and k places before the last one are alike. */
static bool are_like(const wr_learner *l, const wr_line *of, uint32_t i, uint32_t k)
{
    const wr_birth *a = &l->births[of->at[of->count - 1 - i]], *b = &l->births[of->at[of->count - 1 - k]];
    return a->bytes == b->bytes && a->stream == b->stream;
}

/* Its life or, if it has not ended, that of the last one whole rounds earlier which has; 0: none. `begin`: rounds are
 * alike from here on. */
static uint32_t usual_life(const wr_learner *l, const wr_line *of, uint32_t i, uint32_t round, uint32_t begin)
{
    while (l->births[of->at[i]].end == UINT32_MAX && i - begin >= round) i -= round;
    return l->births[of->at[i]].end == UINT32_MAX ? 0 : wr_learn_life_of(l, of, i);
}

/* A block that outlives its round still occupies its place when the next round needs it. If more than a few do, as with
 * buffers used in turn, a longer round is looked for: at least so long; 0: not needed. `length`: of all that
 * repeats. */
static uint32_t outlived_by(const wr_learner *l, const wr_line *of, uint32_t round, uint32_t length)
{
    const uint32_t first = of->count - 2 * round;
    uint32_t count = 0, least = UINT32_MAX;
    for (uint32_t i = first; i < first + round; i++) {
        const uint32_t life = usual_life(l, of, i, round, of->count - length);
        if (life <= round) continue;
        if (life < least) least = life;
        count++;
    }
    return count > round / WR_LEARN_OUTLIVED ? least : 0;
}

/* The period with which the end of the line repeats the longest, at least two rounds. like[p]: how far the line, read
 * backwards, equals itself shifted by p (the Z function). */
static uint32_t find_round(const wr_learner *l, const wr_line *of, uint32_t *like)
{
    uint32_t best = 0, best_length = 0, least = WR_LEARN_LEAST, tried = 0;
    for (uint32_t p = 1, left = 0, right = 0; p < of->count; p++) {
        uint32_t n = 0;
        if (p < right) n = like[p - left] < right - p ? like[p - left] : right - p;
        while (p + n < of->count && are_like(l, of, n, p + n)) n++;
        like[p] = n;
        if (p + n > right) {
            left = p;
            right = p + n;
        }
        if (p < least || n < p || n + p <= best_length || tried == WR_LEARN_TRIES) continue;
        const uint32_t longer = outlived_by(l, of, p, n + p);
        if (longer) {
            least = longer;
            tried++;
            continue;
        }
        best = p;
        best_length = n + p;
    }
    return best_length >= of->count / WR_LEARN_SHARE ? best : 0;
}

static weir_status find_rounds(wr_learner *l)
{
    void *like = NULL;
    WR_TRY(wr_meta_alloc((l->count + 1) * sizeof(uint32_t), "rounds", &like));
    for (size_t k = 0; k < l->line_count; k++) l->lines[k].round = find_round(l, &l->lines[k], like);
    if (l->options->share && l->line_count > 1) l->all.round = find_round(l, &l->all, like);
    wr_meta_free(like);
    return WEIR_OK;
}

weir_status wr_learn(const weir_event *events, size_t count, const wr_learn_options *options, weir_plan **plan,
                     const wr_arena_user **users)
{
    wr_learner l = { .options = options };
    WR_ENSURE(count < UINT32_MAX, WEIR_ERR_NOT_SUPPORTED, "%zu events are too many to learn from", count);
    weir_status status = find_births(&l, events, count);
    if (status == WEIR_OK) status = find_lines(&l);
    if (status == WEIR_OK) status = find_rounds(&l);
    if (status == WEIR_OK) status = wr_learn_plan(&l, count ? events[0].device : 0, plan, users);
    wr_meta_free(l.by_stream);
    wr_meta_free(l.lines);
    wr_meta_free(l.births);
    return status;
}
