/*
 * config: a recorded allocator's settings for a replay, beyond the plain numbers of trace_settings: the divisions, and
 * the settings that only the text of the configuration (PYTORCH_CUDA_ALLOC_CONF) has.
 */
#ifndef WEIR_TOOLS_SCRIPT_CONFIG_H
#define WEIR_TOOLS_SCRIPT_CONFIG_H

#include "input/input.h"

enum { CONFIG_CLASSES = 16, CONFIG_ROUNDUP = 256 };

typedef struct config {
    uint64_t large_segment;             /* bytes; 0: PyTorch's own */
    uint64_t non_split_rounding;        /* the same */
    double memory_fraction;             /* the share of a device's memory that may be reserved; 1: no limit */
    bool expandable, other_backend;     /* rules other than those of the native allocator's segments apply */
    uint32_t divisions[CONFIG_CLASSES]; /* by power of two, from 1 MiB on; all 0: off */
    bool divisions_unread;              /* their text does not follow PyTorch's grammar */
} config;

/* Reads by PyTorch's grammar, which ignores white space and lets a later word win. Ignores anything that PyTorch would
 * have refused, and the last word of a text that the trace reader truncated. */
void config_read(const trace_settings *recorded, config *out);

/* Writes the divisions as the shortest text in PyTorch's grammar; "" when they are off. */
void config_roundup(const config *c, char out[CONFIG_ROUNDUP]);

/* A request rounded by PyTorch's divisions; unchanged where these are off. */
uint64_t config_round(const config *c, uint64_t bytes);

#endif
