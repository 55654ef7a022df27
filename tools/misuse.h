/*
 * misuse: what the option debug=streams found while a trace was recorded, one event each.
 */
#ifndef WEIR_TOOLS_MISUSE_H
#define WEIR_TOOLS_MISUSE_H

#include "input/input.h"
#include "output/json.h"

#define MISUSE_UNKNOWN SIZE_MAX

bool misuse_is(const weir_event *e);

/* Says what happened and what to do, with `name` before each line. `made`: the event that allocated the block, or
 * MISUSE_UNKNOWN. */
void misuse_print(FILE *out, const char *name, const trace *t, size_t index, size_t made);
json_t *misuse_json(const trace *t, size_t index, size_t made);

#endif
