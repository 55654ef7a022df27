/*
 * csv: the logs of RMM's logging_resource_adaptor: a header line that names the columns, then a line per allocation
 * and free.
 */
#ifndef WEIR_TOOLS_INPUT_CSV_H
#define WEIR_TOOLS_INPUT_CSV_H

#include "source.h"

bool csv_detect(const uint8_t *head, size_t count);

/* On false the source's error is set; *out may hold something and is released by the caller either way. */
bool csv_read(source *s, const trace_limits *limits, trace *out);

#endif
