/*
 * advise: what a job would reserve under each setting of PyTorch's allocator and under weir, and which is best.
 */
#ifndef WEIR_TOOLS_REPLAY_ADVISE_H
#define WEIR_TOOLS_REPLAY_ADVISE_H

#include "replay/run.h"

/* A line of PyTorch's configuration, or weir. */
typedef struct setting {
    const char *name;   /* as PYTORCH_CUDA_ALLOC_CONF has it; "default" for none; "weir" */
    const char *policy; /* that stands for it */
    trace_settings options;
} setting;

enum { ADVISE_SETTINGS = 11 };

/* What a setting costs. */
typedef struct outcome {
    setting setting;
    measurement whole, first, second; /* the job, and its halves; peaks are those of the fullest device */
    size_t failed;                    /* the operation of the job that found no memory, from 1; 0: of a resident */
    bool again;                       /* none: what failed when recorded did, after that operation */
    uint64_t card;                    /* smallest common card that the job fits on; 0: none */
} outcome;

typedef struct advice {
    outcome at[ADVISE_SETTINGS]; /* simpler settings first, weir last */
    size_t count;
    size_t best;         /* of PyTorch's; `count` when none fits */
    size_t chosen;       /* by the first half alone; `count` when none fits there */
    size_t better;       /* best on the second half; `count` when none fits there */
    bool checked;        /* both halves allocate something */
    bool held;           /* what the first half chose is within 1 % of the best on the second */
    char left_out[1200]; /* why the recorded setting is not among them; "": it is, or is one of the others, or none */
} advice;

typedef struct advise_options {
    uint64_t device_memory; /* 0: unknown */
    uint64_t context;       /* of it, what is not the allocator's */
} advise_options;

/* Called before each setting. */
typedef void (*advise_progress)(void *user, unsigned done, unsigned total);

/* False: error[] says why. What is said of `recorded` must outlive the advice. */
bool advise(const script *sc, const trace_settings *recorded, const advise_options *options, advise_progress progress,
            void *user, advice *out, char error[1200]);

#endif
