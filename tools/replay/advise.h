/*
 * advise: what a job would reserve under each setting of PyTorch's allocator and under weir, and which setting is best.
 */
#ifndef WEIR_TOOLS_REPLAY_ADVISE_H
#define WEIR_TOOLS_REPLAY_ADVISE_H

#include "replay/run.h"

/* A line of PyTorch's configuration, or weir. */
typedef struct setting {
    const char *name;   /* as PYTORCH_CUDA_ALLOC_CONF has it; "default" for none; "weir" */
    const char *policy; /* that models it */
    trace_settings options;
} setting;

enum { ADVISE_SETTINGS = 11 };

/* What a setting costs. */
typedef struct outcome {
    setting setting;
    measurement whole, first, second; /* the job, and its halves; peaks are those of the fullest device */
    size_t failed;                    /* the first operation that found no memory, from 1; 0: a resident's */
    bool again;    /* none failed, but one that had failed when recorded did again, after that operation */
    uint64_t card; /* bytes of the smallest card that the job fits on; 0: none */
} outcome;

typedef struct advice {
    outcome at[ADVISE_SETTINGS]; /* simpler settings first, weir last */
    size_t count;
    size_t best;                 /* of PyTorch's settings; `count` when none fits */
    size_t chosen;               /* by the first half alone; `count` when none fits there */
    size_t better;               /* best on the second half; `count` when none fits there */
    bool checked;                /* both halves allocate something */
    bool held;                   /* the setting chosen by the first half is within 1 % of the best on the second */
    char left_out[SCRIPT_ERROR]; /* why the recorded setting was left out; "": it was not, or there is none */
} advice;

typedef struct advise_options {
    uint64_t device_memory; /* 0: unknown */
    uint64_t context;       /* the part of it that the allocator cannot use */
} advise_options;

/* The device that the job is replayed on: the one that is known, or else the largest common card. */
uint64_t advise_device(const advise_options *options);

/* Called before each setting. */
typedef void (*advise_progress)(void *user, uint64_t done, uint64_t total);

/* The caller frees the advice, which is too large for a thread's stack. NULL: error[] says why. `recorded` must outlive
 * it. */
advice *advise(const script *sc, const trace_settings *recorded, const advise_options *options,
               advise_progress progress, void *user, char error[SCRIPT_ERROR]);

#endif
