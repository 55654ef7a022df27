/*
 * run: plays a script against the library. A session is the open library with one stream per stream of the trace, one
 * private pool per private pool, and the slots of the script; the first pass is cold, later ones find its cached
 * memory.
 * Owner: the caller, until session_close. One session at a time: the library is one per process.
 */
#ifndef WEIR_TOOLS_REPLAY_RUN_H
#define WEIR_TOOLS_REPLAY_RUN_H

#include "replay/gate.h"
#include "script/script.h"
#include "weir/plan.h"

/* Of each device of the host back end, unless another size is asked for. */
#define SESSION_HOST_MEMORY (UINT64_C(80) << 30)

typedef struct session_options {
    const char *policy, *backend;
    uint64_t device_memory; /* for the library on each device, a limit on a real one; 0: as the environment says */
    uint64_t beside;        /* memory of each device in use by others */
    uint64_t history;       /* events kept; 0: recording off */
    const weir_plan *plan;  /* plan to serve; NULL: none */
    bool refused;           /* allocations that failed when recorded are tried, and freed at once */
    bool until_oom;         /* only whether all fits is asked: after the first failure nothing is allocated */
    bool from_start;        /* policy torch: begins with the state that the recording began in */
    bool alone;             /* the environment's options do not apply: the setting is named for what it is */
    bool learn;             /* between passes the library plans what they repeat */
} session_options;

typedef struct session {
    const script *script;
    const char *backend;
    bool host, torch;
    bool refused, until_oom, from_start; /* as in the options */
    bool collects;                       /* the policy collects by age, as the recorded allocator did */
    weir_stream *streams;                /* by the script's index */
    weir_mempool *pools;                 /* likewise; {0, 0} is the default pool */
    void **slots;
    gates gates;
    uint64_t oom;             /* failed allocations of the pass */
    const script_op *oom_op;  /* the first one; NULL when there was none */
    char oom_text[1024];      /* the library's error text for the first one; "" when there was none */
    char note[160];           /* what could not be set up as recorded; "" when all was */
    char error[SCRIPT_ERROR]; /* why session_open or session_pass returned false */
} session;

typedef struct pass {
    uint64_t ns; /* of the script's body */
    uint64_t driver_calls, oom;
    uint64_t driver_ns; /* modelled; host back end only */
} pass;

/* Policy torch takes over the recorded allocator's settings and the addresses of its segments. On the host back end
 * there is no limit but the recorded one, because a limit changes the policy's rules. */
bool session_open(session *s, const script *sc, const trace_settings *recorded, const session_options *options);

/* Plays the script once; afterwards nothing is allocated. */
bool session_pass(session *s, pass *out);

void session_close(session *s);

/* The device that reserves most: the figures are its own peaks. */
typedef struct fullest {
    int device;
    uint64_t requested, reserved;
} fullest;

/* What a trace costs under a policy. */
typedef struct measurement {
    char backend[16];
    uint64_t operations, driver_calls;
    uint64_t peak_requested;                    /* the job's own, the same under every policy (script/demand.h) */
    uint64_t peak_reserved, peak_reserved_warm; /* of the cold pass; of the last warm pass, 0 when there is none */
    fullest fullest;                            /* of the cold pass */
    uint64_t oom, oom_warm;                     /* of the cold pass; of all warm ones */
    double ns_per_op_cold, ns_per_op_warm;      /* NAN when there are no operations */
    double driver_ns;        /* the time that driver calls would have taken (weir/host.h); NAN on a real driver */
    const script_op *oom_op; /* the script's first allocation that failed; NULL when none did */
    struct {
        uint64_t served, late, missed, resyncs; /* allocations; of the cold pass, or of all when learned */
    } plan;
    char oom_text[1024], note[160];
} measurement;

/* Adds a device's peaks. Of equally full devices the first counts as the fullest. */
void measurement_add(measurement *m, int device, uint64_t requested, uint64_t reserved);

/* Reserved minus requested bytes; 0 if less was reserved because the replay waited for uses that went on when
 * recorded. */
uint64_t measurement_waste(const measurement *m);

/* Reserved / requested; NAN when nothing is requested, or there was no warm pass. */
double measurement_ratio(const measurement *m);
double measurement_ratio_warm(const measurement *m);

/* Called before each pass, from 0; NULL: nothing is. */
typedef void (*measure_progress)(void *user, uint64_t pass, uint64_t passes);

/* Runs one cold pass and `warm` warm ones, which may be 0, in a session of their own. False: error[] says why. */
bool measure(const script *sc, const trace_settings *recorded, const session_options *options, unsigned warm,
             measure_progress progress, void *user, measurement *out, char error[SCRIPT_ERROR]);

#endif
