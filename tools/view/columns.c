#include "view/columns.h"

#include "grow.h"
#include "output/json.h"

#include <stdlib.h>
#include <zlib.h>

static void put(columns *c, uint64_t value)
{
    c->bytes = grow_array(c->bytes, c->count + 10, &c->capacity, 1);
    for (; value > 127; value >>= 7) c->bytes[c->count++] = (uint8_t)(value | 128);
    c->bytes[c->count++] = (uint8_t)value;
}

/* The difference, in zigzag encoding. */
static void put_step(columns *c, uint64_t from, uint64_t to)
{
    int64_t step = (int64_t)(to - from);
    put(c, (uint64_t)step << 1 ^ (uint64_t)(step >> 63));
}

/* 1 + the distance of an end from its start; 0: never. */
static void put_end(columns *c, uint32_t start, uint32_t end)
{
    put(c, end == TIMELINE_NEVER ? 0 : (uint64_t)end - start + 1);
}

static void end_column(columns *c, const char *name, size_t count)
{
    json_t *object = json_object();
    json_add(object, "name", json_string(name));
    json_add(object, "count", json_count(count));
    json_push(c->about, object);
}

/* A column of `type` rows; `x` is the row, `last` the one before it, which is all zero for the first. */
#define COLUMN(c, name, type, rows, number, statement)                                                                 \
    do {                                                                                                               \
        static const type zero;                                                                                        \
        for (size_t i = 0; i < (number); i++) {                                                                        \
            const type *x = &(rows)[i], *last = i ? x - 1 : &zero;                                                     \
            (void)last;                                                                                                \
            statement;                                                                                                 \
        }                                                                                                              \
        end_column(c, name, number);                                                                                   \
    } while (0)

static void put_blocks(columns *c, const timeline *l)
{
    const timeline_block *b = l->blocks;
    size_t n = l->block_count;
    uint64_t at = c->base;
    COLUMN(c, "block.from", timeline_block, b, n, put(c, x->from - last->from));
    COLUMN(c, "block.freed", timeline_block, b, n, put_end(c, x->from, x->freed));
    COLUMN(c, "block.until", timeline_block, b, n, put_end(c, x->freed, x->until));
    COLUMN(c, "block.bytes", timeline_block, b, n, put(c, x->bytes));
    COLUMN(c, "block.address", timeline_block, b, n, (put_step(c, at, x->address), at = x->address));
    COLUMN(c, "block.lane", timeline_block, b, n, put(c, x->lane));
    COLUMN(c, "block.stack", timeline_block, b, n, put(c, x->stack));
    COLUMN(c, "block.thread", timeline_block, b, n, put(c, x->thread));
}

static void put_segments(columns *c, const timeline *l)
{
    const timeline_segment *s = l->segments;
    size_t n = l->segment_count;
    uint64_t at = c->base;
    COLUMN(c, "segment.from", timeline_segment, s, n, put(c, x->from - last->from));
    COLUMN(c, "segment.until", timeline_segment, s, n, put_end(c, x->from, x->until));
    COLUMN(c, "segment.bytes", timeline_segment, s, n, put(c, x->bytes));
    COLUMN(c, "segment.address", timeline_segment, s, n, (put_step(c, at, x->address), at = x->address));
    COLUMN(c, "segment.lane", timeline_segment, s, n, put(c, x->lane));
    COLUMN(c, "segment.mapped", timeline_segment, s, n, put(c, x->mapped));
}

static void put_ooms(columns *c, const timeline *l)
{
    const timeline_oom *o = l->ooms;
    size_t n = l->oom_count;
    COLUMN(c, "oom.moment", timeline_oom, o, n, put(c, x->moment - last->moment));
    COLUMN(c, "oom.bytes", timeline_oom, o, n, put(c, x->bytes));
    COLUMN(c, "oom.free", timeline_oom, o, n, put(c, x->device_free));
    COLUMN(c, "oom.lane", timeline_oom, o, n, put(c, x->lane));
    COLUMN(c, "oom.stack", timeline_oom, o, n, put(c, x->stack));
}

void columns_build(const timeline *l, columns *out)
{
    *out = (columns){ .base = UINT64_MAX, .about = json_array() };
    for (size_t i = 0; i < l->block_count; i++)
        if (l->blocks[i].address < out->base) out->base = l->blocks[i].address;
    for (size_t i = 0; i < l->segment_count; i++)
        if (l->segments[i].address < out->base) out->base = l->segments[i].address;
    if (out->base == UINT64_MAX) out->base = 0;

    /* In microseconds: no recorder's clock is meaningfully finer. */
    COLUMN(out, "time", uint64_t, l->times, l->moments, put(out, *x / 1000 - *last / 1000));
    put_blocks(out, l);
    put_segments(out, l);
    put_ooms(out, l);
}

static void write_base64(FILE *to, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4096];
    size_t used = 0;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)bytes[i] << 16;
        if (left > 1) group |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2) group |= bytes[i + 2];
        text[used++] = digits[group >> 18];
        text[used++] = digits[group >> 12 & 63];
        text[used++] = left > 1 ? digits[group >> 6 & 63] : '=';
        text[used++] = left > 2 ? digits[group & 63] : '=';
        if (used == sizeof text) {
            fwrite(text, 1, used, to);
            used = 0;
        }
    }
    fwrite(text, 1, used, to);
}

void columns_write(const columns *c, FILE *to)
{
    uLongf packed_count = compressBound(c->count);
    uint8_t *packed = grow_new(packed_count, 1);
    /* Level 3: a fifth larger than the best, several times as fast. Only memory can lack. */
    if (compress2(packed, &packed_count, c->bytes, c->count, 3) != Z_OK) grow_stop(c->count, 1);
    write_base64(to, packed, packed_count);
    free(packed);
}

void columns_release(columns *c)
{
    free(c->bytes);
    json_decref(c->about);
    *c = (columns){ 0 };
}
