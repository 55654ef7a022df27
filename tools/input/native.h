/*
 * native: weir's own trace files (include/weir/trace.h, docs/trace-format.md), read and written.
 */
#ifndef WEIR_TOOLS_INPUT_NATIVE_H
#define WEIR_TOOLS_INPUT_NATIVE_H

#include "source.h"

bool native_detect(const uint8_t *head, size_t count);

/* On false the source's error is set; *out may hold something and is released by the caller either way. */
bool native_read(source *s, const trace_limits *limits, trace *out);

/* Writes everything of a trace but its name and its original format. False: errno says why. */
bool trace_write_native(FILE *to, const trace *t);

#endif
