/*
 * settings: what recordings say of the options that decide where blocks lie, as PyTorch names them.
 * Plain data. Owner: the caller; its texts are as long there as the options. No lock.
 */
#ifndef WR_OBSERVE_SETTINGS_H
#define WR_OBSERVE_SETTINGS_H

#include "base/options.h"

typedef struct wr_settings {
    const char *policy;
    uint64_t max_split_size; /* 0: none */
    double gc_threshold;
    const char *divisions;                /* as given; "": off */
    uint32_t roundup[WR_ROUNDUP_ENTRIES]; /* the same */
    char config[320];                     /* what is not as PyTorch has it, as PYTORCH_CUDA_ALLOC_CONF would be */
} wr_settings;

void wr_settings_read(const wr_options *options, wr_settings *out);

#endif
