/*
 * config: what a recorded allocator's settings are to a replay, beside the plain numbers of trace_settings: the divisions,
 * and what only the text of the configuration (PYTORCH_CUDA_ALLOC_CONF) tells.
 */
#ifndef WEIR_TOOLS_REPLAY_CONFIG_H
#define WEIR_TOOLS_REPLAY_CONFIG_H

#include "input/input.h"

enum { CONFIG_CLASSES = 16, CONFIG_ROUNDUP = 256 };

typedef struct config {
    uint64_t large_segment;             /* bytes; 0: PyTorch's own */
    uint64_t non_split_rounding;        /* the same */
    double memory_fraction;             /* of a device's memory, at most so much is reserved; 1: no limit */
    bool expandable, other_backend;     /* other rules than those of the native allocator's segments */
    uint32_t divisions[CONFIG_CLASSES]; /* of a power of two, from 1 MiB on; all 0: off */
    bool divisions_unread;              /* they are no text of PyTorch's grammar */
} config;

/* By PyTorch's grammar, in which white space counts nowhere and a later word wins. What PyTorch would have refused is as if
 * it was not there, and so is the end of a text that the file's reader has cut. */
void config_read(const trace_settings *recorded, config *out);

/* The divisions in as short a text as PyTorch's grammar has for them; "" when they are off. */
void config_roundup(const config *c, char out[CONFIG_ROUNDUP]);

/* A request as PyTorch's divisions round it; left as it is where they say nothing. */
uint64_t config_round(const config *c, uint64_t bytes);

#endif
