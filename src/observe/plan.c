#include "observe/plan.h"

#include "base/meta.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

enum { HEADER_BYTES = 64, ARENA_BYTES = 88, ENTRY_BYTES = 24, RECORD_MAX = 4096 };

_Static_assert(sizeof(weir_plan_arena) == ARENA_BYTES, "an arena has no padding");
_Static_assert(sizeof(weir_plan_entry) == ENTRY_BYTES, "an entry has no padding");

/* The header's fields, by offset. */
enum {
    AT_MAJOR = 8,
    AT_MINOR = 10,
    AT_HEADER_BYTES = 12,
    AT_ARENA_BYTES = 16,
    AT_ENTRY_BYTES = 20,
    AT_ARENAS = 24,
    AT_ENTRIES = 32,
    AT_TRACE = 40
};

/* Field by field, because the file is little endian whatever the machine is. */
static uint64_t get(const uint8_t *from, size_t bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | from[bytes];
    return value;
}

static void put(uint8_t *to, size_t bytes, uint64_t value)
{
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* Where the parts of a file are. */
typedef struct frame {
    const uint8_t *bytes;
    unsigned minor;
    uint64_t arenas, entries, arena_bytes, entry_bytes;
    uint64_t arenas_at, entries_at;
} frame;

static weir_status check_header(const uint8_t *bytes, size_t count, frame *f)
{
    WR_ENSURE(count >= 8 && memcmp(bytes, WEIR_PLAN_MAGIC, 8) == 0, WEIR_ERR_FORMAT,
              "this is not a plan: a plan begins with \"" WEIR_PLAN_MAGIC "\"; make one with 'weir plan'");
    WR_ENSURE(count >= HEADER_BYTES, WEIR_ERR_FORMAT, "byte %zu: the plan ends inside its header: it is not complete",
              count);

    unsigned major = (unsigned)get(bytes + AT_MAJOR, 2), minor = (unsigned)get(bytes + AT_MINOR, 2);
    WR_ENSURE(major != 0, WEIR_ERR_FORMAT, "byte %d: plan format version 0.%u does not exist; make the plan again",
              AT_MAJOR, minor);
    WR_ENSURE(
        major == WEIR_PLAN_VERSION_MAJOR, WEIR_ERR_INCOMPATIBLE,
        "plan format version %u.%u: this weir reads %d.x; use the version of weir that wrote it, or make the plan "
        "again",
        major, minor, WEIR_PLAN_VERSION_MAJOR);
    uint64_t header_bytes = get(bytes + AT_HEADER_BYTES, 4);
    f->arena_bytes = get(bytes + AT_ARENA_BYTES, 4);
    f->entry_bytes = get(bytes + AT_ENTRY_BYTES, 4);
    WR_ENSURE(header_bytes >= HEADER_BYTES && header_bytes <= RECORD_MAX, WEIR_ERR_FORMAT,
              "byte %d: the header has %" PRIu64 " bytes; %d to %d are possible", AT_HEADER_BYTES, header_bytes,
              HEADER_BYTES, RECORD_MAX);
    WR_ENSURE(f->arena_bytes >= ARENA_BYTES && f->arena_bytes <= RECORD_MAX, WEIR_ERR_FORMAT,
              "byte %d: arenas have %" PRIu64 " bytes each; %d to %d are possible", AT_ARENA_BYTES, f->arena_bytes,
              ARENA_BYTES, RECORD_MAX);
    WR_ENSURE(f->entry_bytes >= ENTRY_BYTES && f->entry_bytes <= RECORD_MAX, WEIR_ERR_FORMAT,
              "byte %d: entries have %" PRIu64 " bytes each; %d to %d are possible", AT_ENTRY_BYTES, f->entry_bytes,
              ENTRY_BYTES, RECORD_MAX);

    /* A false count must not make us allocate: the bytes that it announces must be there. */
    f->bytes = bytes;
    f->minor = minor;
    f->arenas = get(bytes + AT_ARENAS, 8);
    f->entries = get(bytes + AT_ENTRIES, 8);
    f->arenas_at = header_bytes;
    WR_ENSURE(count >= header_bytes, WEIR_ERR_FORMAT,
              "byte %zu: the plan ends inside its header of %" PRIu64 " bytes: it is not complete", count,
              header_bytes);
    uint64_t left = count - header_bytes;
    WR_ENSURE(f->arenas <= left / f->arena_bytes, WEIR_ERR_FORMAT,
              "byte %zu: the plan ends before the last of its %" PRIu64 " arenas: it is not complete", count,
              f->arenas);
    left -= f->arenas * f->arena_bytes;
    f->entries_at = header_bytes + f->arenas * f->arena_bytes;
    WR_ENSURE(f->entries <= left / f->entry_bytes, WEIR_ERR_FORMAT,
              "byte %zu: the plan ends before the last of its %" PRIu64 " entries: it is not complete", count,
              f->entries);
    return WEIR_OK;
}

static weir_plan_arena decode_arena(const uint8_t *from, unsigned minor)
{
    return (weir_plan_arena){
        .device = (int32_t)(uint32_t)get(from + offsetof(weir_plan_arena, device), 4),
        .pool = (uint32_t)get(from + offsetof(weir_plan_arena, pool), 4),
        .flags = (uint32_t)get(from + offsetof(weir_plan_arena, flags), 4),
        .streams = (uint32_t)get(from + offsetof(weir_plan_arena, streams), 4),
        .bytes = get(from + offsetof(weir_plan_arena, bytes), 8),
        .bound = get(from + offsetof(weir_plan_arena, bound), 8),
        .waits = get(from + offsetof(weir_plan_arena, waits), 8),
        .first = get(from + offsetof(weir_plan_arena, first), 8),
        .entries = get(from + offsetof(weir_plan_arena, entries), 8),
        .loop_first = get(from + offsetof(weir_plan_arena, loop_first), 8),
        .loop_entries = get(from + offsetof(weir_plan_arena, loop_entries), 8),
        .loop_times = get(from + offsetof(weir_plan_arena, loop_times), 8),
        .residents = minor < 1 ? 0 : get(from + offsetof(weir_plan_arena, residents), 8),
    };
}

static void encode_arena(const weir_plan_arena *a, uint8_t *to)
{
    put(to + offsetof(weir_plan_arena, device), 4, (uint32_t)a->device);
    put(to + offsetof(weir_plan_arena, pool), 4, a->pool);
    put(to + offsetof(weir_plan_arena, flags), 4, a->flags);
    put(to + offsetof(weir_plan_arena, streams), 4, a->streams);
    put(to + offsetof(weir_plan_arena, bytes), 8, a->bytes);
    put(to + offsetof(weir_plan_arena, bound), 8, a->bound);
    put(to + offsetof(weir_plan_arena, waits), 8, a->waits);
    put(to + offsetof(weir_plan_arena, first), 8, a->first);
    put(to + offsetof(weir_plan_arena, entries), 8, a->entries);
    put(to + offsetof(weir_plan_arena, loop_first), 8, a->loop_first);
    put(to + offsetof(weir_plan_arena, loop_entries), 8, a->loop_entries);
    put(to + offsetof(weir_plan_arena, loop_times), 8, a->loop_times);
    put(to + offsetof(weir_plan_arena, residents), 8, a->residents);
}

static weir_status check_arena(const weir_plan_arena *a, uint64_t offset, uint64_t expected, uint64_t entries)
{
    WR_ENSURE(a->device >= 0, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the arena is on device %" PRId32 ", which is not a device", offset, a->device);
    WR_ENSURE((a->flags & ~WEIR_PLAN_ONE_STREAM) == 0, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": unknown flags 0x%" PRIx32 ": use a newer weir", offset, a->flags);
    WR_ENSURE(a->bytes % WEIR_PLAN_ALIGNMENT == 0, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the arena has %" PRIu64 " bytes, which is not a multiple of %d", offset, a->bytes,
              WEIR_PLAN_ALIGNMENT);
    WR_ENSURE(a->first == expected && a->entries <= entries - expected, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the arena begins at entry %" PRIu64 " and has %" PRIu64 " entries, but the next "
              "entry is %" PRIu64 " of %" PRIu64,
              offset, a->first, a->entries, expected, entries);
    bool loops = a->loop_entries > 0 && a->loop_times > 1 && a->loop_first <= a->entries &&
                 a->loop_entries <= a->entries - a->loop_first;
    bool straight = a->loop_first == 0 && a->loop_entries == 0 && a->loop_times == 0;
    WR_ENSURE(loops || straight, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the loop begins at entry %" PRIu64 ", has %" PRIu64 " entries and runs %" PRIu64
              " times, which does not fit an arena of %" PRIu64 " entries",
              offset, a->loop_first, a->loop_entries, a->loop_times, a->entries);
    const uint64_t before_loop = loops ? a->loop_first : a->entries;
    WR_ENSURE(a->residents <= before_loop, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the arena has %" PRIu64 " residents, but only %" PRIu64
              " entries before those that repeat",
              offset, a->residents, before_loop);
    return WEIR_OK;
}

static weir_status check_entry(const weir_plan_entry *e, uint64_t offset, const weir_plan_arena *a)
{
    bool aligned = e->offset % WEIR_PLAN_ALIGNMENT == 0 && e->bytes % WEIR_PLAN_ALIGNMENT == 0;
    WR_ENSURE(aligned && e->bytes > 0 && e->bytes <= a->bytes && e->offset <= a->bytes - e->bytes, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the entry has %" PRIu64 " bytes at offset %" PRIu64
              ", which is empty, misaligned or outside its arena of %" PRIu64 " bytes",
              offset, e->bytes, e->offset, a->bytes);
    WR_ENSURE(e->stream < a->streams, WEIR_ERR_FORMAT,
              "byte %" PRIu64 ": the entry is on stream %" PRIu32 " of an arena that has %" PRIu32 " streams", offset,
              e->stream, a->streams);
    return WEIR_OK;
}

static weir_status decode_all(const frame *f, weir_plan_arena *arenas, weir_plan_entry *entries)
{
    uint64_t next = 0;
    for (uint64_t i = 0; i < f->arenas; i++) {
        uint64_t offset = f->arenas_at + i * f->arena_bytes;
        arenas[i] = decode_arena(f->bytes + offset, f->minor);
        WR_TRY(check_arena(&arenas[i], offset, next, f->entries));
        next += arenas[i].entries;
        for (uint64_t k = arenas[i].first; k < next; k++) {
            offset = f->entries_at + k * f->entry_bytes;
            const uint8_t *from = f->bytes + offset;
            entries[k] = (weir_plan_entry){
                .offset = get(from + offsetof(weir_plan_entry, offset), 8),
                .bytes = get(from + offsetof(weir_plan_entry, bytes), 8),
                .lives = (uint32_t)get(from + offsetof(weir_plan_entry, lives), 4),
                .stream = (uint32_t)get(from + offsetof(weir_plan_entry, stream), 4),
            };
            WR_TRY(check_entry(&entries[k], offset, &arenas[i]));
        }
    }
    WR_ENSURE(next == f->entries, WEIR_ERR_FORMAT,
              "byte %d: the plan has %" PRIu64 " entries, but its arenas have %" PRIu64, AT_ENTRIES, f->entries, next);
    return WEIR_OK;
}

weir_status wr_plan_decode(const uint8_t *bytes, size_t count, weir_plan **plan)
{
    frame f;
    void *memory;
    WR_TRY(check_header(bytes, count, &f));
    /* The parts are no larger in memory than in the file, so the sum cannot overflow. */
    size_t arenas = (size_t)f.arenas * ARENA_BYTES, entries = (size_t)f.entries * ENTRY_BYTES;
    WR_TRY(wr_meta_alloc(sizeof(weir_plan) + arenas + entries, "a plan", &memory));

    weir_plan *made = memory;
    weir_plan_arena *arena = (weir_plan_arena *)(made + 1);
    weir_plan_entry *entry = (weir_plan_entry *)(arena + f.arenas);
    *made = (weir_plan){ get(bytes + AT_TRACE, 8), f.arenas, f.entries, arena, entry };
    weir_status status = decode_all(&f, arena, entry);
    if (status == WEIR_OK)
        *plan = made;
    else
        wr_meta_free(memory);
    return status;
}

void wr_plan_destroy(weir_plan *plan)
{
    wr_meta_free(plan);
}

uint64_t wr_plan_bytes(const weir_plan *plan)
{
    return HEADER_BYTES + plan->arena_count * ARENA_BYTES + plan->entry_count * ENTRY_BYTES;
}

void wr_plan_encode(const weir_plan *plan, uint8_t *bytes)
{
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, WEIR_PLAN_MAGIC, 8);
    put(bytes + AT_MAJOR, 2, WEIR_PLAN_VERSION_MAJOR);
    put(bytes + AT_MINOR, 2, WEIR_PLAN_VERSION_MINOR);
    put(bytes + AT_HEADER_BYTES, 4, HEADER_BYTES);
    put(bytes + AT_ARENA_BYTES, 4, ARENA_BYTES);
    put(bytes + AT_ENTRY_BYTES, 4, ENTRY_BYTES);
    put(bytes + AT_ARENAS, 8, plan->arena_count);
    put(bytes + AT_ENTRIES, 8, plan->entry_count);
    put(bytes + AT_TRACE, 8, plan->trace);
    bytes += HEADER_BYTES;
    for (uint64_t i = 0; i < plan->arena_count; i++, bytes += ARENA_BYTES) encode_arena(&plan->arenas[i], bytes);
    for (uint64_t i = 0; i < plan->entry_count; i++, bytes += ENTRY_BYTES) {
        const weir_plan_entry *e = &plan->entries[i];
        put(bytes + offsetof(weir_plan_entry, offset), 8, e->offset);
        put(bytes + offsetof(weir_plan_entry, bytes), 8, e->bytes);
        put(bytes + offsetof(weir_plan_entry, lives), 4, e->lives);
        put(bytes + offsetof(weir_plan_entry, stream), 4, e->stream);
    }
}
