#include "observe/trace.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SECTION_BYTES = 16, SETTINGS = 3, SETTINGS_BYTES = 28 }; /* docs/trace-format.md */

void wr_trace_write_header(wr_output *out, uint64_t events, uint64_t dropped, const wr_stack_set *set)
{
    weir_trace_header header = { .version_major = WEIR_TRACE_VERSION_MAJOR,
                                 .version_minor = WEIR_TRACE_VERSION_MINOR,
                                 .header_bytes = sizeof header,
                                 .event_bytes = sizeof(weir_event) + (set->count ? sizeof(uint32_t) : 0),
                                 .events = events,
                                 .dropped = dropped,
                                 .frames = set->frame_count,
                                 .stacks = set->count,
                                 .stacks_lost = wr_stacks_lost(),
                                 .sections = 1 };
    memcpy(header.magic, WEIR_TRACE_MAGIC, sizeof header.magic);
    wr_output_write(out, &header, sizeof header);
}

void wr_trace_write_events(wr_output *out, const weir_event *events, const uint32_t *stacks, size_t count,
                           const wr_stack_set *set)
{
    if (set->count == 0) {
        wr_output_write(out, events, count * sizeof *events);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t number = stacks ? wr_stack_set_number(set, stacks[i]) : 0;
        wr_output_write(out, &events[i], sizeof events[i]);
        wr_output_write(out, &number, sizeof number);
    }
}

static void write_frame(wr_output *out, const wr_frame *frame)
{
    char name[WR_FRAME_NAME], line[24] = "";
    wr_frame_name(frame, name);
    if (frame->line != 0) snprintf(line, sizeof line, "%" PRIu64 ":", frame->line);
    const size_t object = frame->object ? strlen(frame->object) : 0;
    const size_t file = object ? wr_utf8_bytes(frame->object, object) + 1 : 0;
    const uint32_t length = (uint32_t)(file + strlen(line) + wr_utf8_bytes(name, strlen(name)));
    wr_output_write(out, &length, sizeof length);
    if (object) {
        wr_output_text(out, frame->object, object);
        wr_output_byte(out, ':');
    }
    wr_output_write(out, line, strlen(line));
    wr_output_text(out, name, strlen(name));
}

void wr_trace_write_stacks(wr_output *out, const wr_stack_set *set)
{
    for (uint32_t i = 0; i < set->frame_count; i++) {
        const wr_frame frame = wr_frame_of(set->frames[i]);
        write_frame(out, &frame);
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const wr_stack *s = set->stacks[i];
        wr_output_write(out, &s->count, sizeof s->count);
        for (uint32_t k = 0; k < s->count; k++) {
            const uint32_t frame = wr_stack_set_frame(set, s->frames[k]);
            wr_output_write(out, &frame, sizeof frame);
        }
    }
}

void wr_trace_write_settings(wr_output *out, const wr_settings *settings)
{
    const uint32_t divisions = (uint32_t)strlen(settings->divisions), config = (uint32_t)strlen(settings->config);
    const struct {
        uint32_t kind, item_bytes;
        uint64_t items, max_split_size;
        double gc_threshold;
        uint32_t flags, divisions, config;
    } item = { .kind = SETTINGS,
               .item_bytes = SETTINGS_BYTES + divisions + config,
               .items = 1,
               .max_split_size = settings->max_split_size,
               .gc_threshold = settings->gc_threshold,
               .divisions = divisions,
               .config = config };
    wr_output_write(out, &item, SECTION_BYTES + SETTINGS_BYTES);
    wr_output_write(out, settings->divisions, divisions);
    wr_output_write(out, settings->config, config);
}
