#include "plan/file.h"

#include "cli.h"
#include "grow.h"
#include "input/source.h"
#include "output/file.h"
#include "output/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_AT_ONCE 65536 /* bytes */
#define HEADER_BYTES 64

/* A wrong plan would corrupt memory of the program that it serves, so the encoded bytes are decoded and checked. */
static bool check(const char *path, const uint8_t *bytes, size_t count, const problem *p)
{
    char reason[240];
    weir_plan *again;
    if (weir_plan_decode(bytes, count, &again) != WEIR_OK) {
        cli_say("plan", "%s: not written, because it cannot be read back: %s", path, weir_error_text());
        return false;
    }
    bool good = plan_serves(again, p, reason, sizeof reason) && plan_holds(again, reason, sizeof reason);
    weir_plan_destroy(again);
    if (!good)
        cli_say("plan", "%s: not written, because the plan is wrong: %s; please report this trace", path, reason);
    return good;
}

static bool write_bytes(const char *path, const uint8_t *bytes, size_t count)
{
    output_file file;
    if (!output_open("plan", path, &file)) return false;
    if (fwrite(bytes, 1, count, file.stream) == count) return output_commit("plan", &file);

    cli_say("plan", "cannot write %s: %s", path, strerror(errno));
    output_discard(&file);
    return false;
}

static bool encode(const char *path, const weir_plan *plan, uint8_t **bytes, size_t *count)
{
    weir_status status = weir_plan_encode(plan, NULL, 0, count);
    if (status == WEIR_OK) {
        *bytes = grow_new(*count, 1);
        status = weir_plan_encode(plan, *bytes, *count, count);
    }
    if (status != WEIR_OK) cli_say("plan", "%s: not written: %s", path, weir_error_text());
    return status == WEIR_OK;
}

bool plan_write(const char *path, const weir_plan *plan, const problem *p)
{
    uint8_t *bytes = NULL;
    size_t count = 0;
    bool good = encode(path, plan, &bytes, &count) && check(path, bytes, count, p) && write_bytes(path, bytes, count);
    free(bytes);
    return good;
}

/* The size of the plan, by its header. 0: not a plan, or an impossible header; decoding says which. */
static uint64_t announced(const uint8_t *bytes, size_t count)
{
    uint64_t arenas, entries, sum;
    if (count < HEADER_BYTES || memcmp(bytes, WEIR_PLAN_MAGIC, 8) != 0) return 0;
    if (__builtin_mul_overflow(little_endian(bytes + 16, 4), little_endian(bytes + 24, 8), &arenas) ||
        __builtin_mul_overflow(little_endian(bytes + 20, 4), little_endian(bytes + 32, 8), &entries) ||
        __builtin_add_overflow(arenas, entries, &sum) ||
        __builtin_add_overflow(sum, little_endian(bytes + 12, 4), &sum))
        return 0;
    return sum;
}

static bool read_bytes(const char *command, const char *path, uint8_t **bytes, size_t *count)
{
    bool piped = strcmp(path, "-") == 0;
    FILE *file = piped ? stdin : fopen(path, "rb");
    if (!file) {
        cli_say(command, "cannot read %s: %s", path, strerror(errno));
        return false;
    }
    size_t capacity = 0;
    *bytes = NULL;
    *count = 0;
    /* Input behind the last entry is not part of the plan, and may be endless. */
    for (uint64_t end = READ_AT_ONCE; *count < end && !feof(file) && !ferror(file); end = announced(*bytes, *count)) {
        *bytes = grow_array(*bytes, *count + READ_AT_ONCE, &capacity, 1);
        size_t room = capacity - *count;
        *count += fread(*bytes + *count, 1, end - *count < room ? end - *count : room, file);
    }
    bool good = !ferror(file);
    if (!good) cli_say(command, "cannot read %s: %s", path, strerror(errno));
    if (!piped) fclose(file);
    if (!good) free(*bytes);
    return good;
}

bool plan_read(const char *command, const char *path, weir_plan **plan)
{
    uint8_t *bytes;
    size_t count;
    if (!read_bytes(command, path, &bytes, &count)) return false;

    bool good = weir_plan_decode(bytes, count, plan) == WEIR_OK;
    free(bytes);
    if (!good) cli_say(command, "%s: %s", path, weir_error_text());
    return good;
}

static void list_arena(const weir_plan *plan, const weir_plan_arena *a, FILE *out)
{
    fprintf(out,
            "arena of device %" PRId32 ", pool %" PRIu32 ": %" PRIu64 " bytes, bound %" PRIu64 ", %" PRIu64
            " entries, %" PRIu32 " streams%s, %" PRIu64 " waits\n",
            a->device, a->pool, a->bytes, a->bound, a->entries, a->streams,
            a->flags & WEIR_PLAN_ONE_STREAM ? ", which share no memory" : "", a->waits);
    if (a->residents)
        fprintf(out, "residents: the first %" PRIu64 " entries, of blocks from before the recording\n", a->residents);
    if (a->loop_times)
        fprintf(out, "loop: entries %" PRIu64 " to %" PRIu64 ", %" PRIu64 " times\n", a->loop_first,
                a->loop_first + a->loop_entries - 1, a->loop_times);

    static const char *const titles[] = { "ENTRY", "OFFSET", "BYTES", "STREAM", "LIVES" };
    table rows;
    table_init(&rows, "rrrrr");
    table_titles(&rows, titles);
    for (uint64_t i = 0; i < a->entries; i++) {
        const weir_plan_entry *e = &plan->entries[a->first + i];
        table_cell(&rows, "%" PRIu64, i);
        table_cell(&rows, "%" PRIu64, e->offset);
        table_cell(&rows, "%" PRIu64, e->bytes);
        table_cell(&rows, "%" PRIu32, e->stream);
        if (e->lives == WEIR_PLAN_FOREVER)
            table_cell(&rows, "forever");
        else
            table_cell(&rows, "%" PRIu32, e->lives);
    }
    table_print(&rows, out);
    table_release(&rows);
}

void plan_list(const weir_plan *plan, FILE *out)
{
    fprintf(out, "plan of trace %016" PRIx64 ": %" PRIu64 " arenas, %" PRIu64 " entries\n", plan->trace,
            plan->arena_count, plan->entry_count);
    for (uint64_t i = 0; i < plan->arena_count; i++) list_arena(plan, &plan->arenas[i], out);
}
