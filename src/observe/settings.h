/*
 * settings: the options that decide where blocks lie, as recordings have them, under PyTorch's names.
 * Plain data. Owner: the caller; its texts live as long as the options. No lock.
 */
#ifndef WR_OBSERVE_SETTINGS_H
#define WR_OBSERVE_SETTINGS_H

#include "base/options.h"

typedef struct wr_settings {
    const char *policy;
    uint64_t max_split_size; /* 0: none */
    double gc_threshold;
    const char *divisions;                /* as given; "": off */
    uint32_t roundup[WR_ROUNDUP_ENTRIES]; /* the same, parsed */
    char config[320]; /* what differs from PyTorch's defaults, in the form of PYTORCH_CUDA_ALLOC_CONF */
} wr_settings;

void wr_settings_read(const wr_options *options, wr_settings *out);

#endif
