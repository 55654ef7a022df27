/*
 * run: plays a script against the library. A session is the open library with one stream per stream of the trace, one private
 * pool per private pool, and the slots of the script; the first pass is cold, later ones find what it cached.
 * Owner: the caller, until session_close. One session at a time: the library is one per process.
 */
#ifndef WEIR_TOOLS_REPLAY_RUN_H
#define WEIR_TOOLS_REPLAY_RUN_H

#include "replay/gate.h"
#include "script/script.h"
#include "weir/plan.h"

typedef struct session_options {
    const char *policy, *backend;
    uint64_t
        device_memory; /* the library's of each device, a limit where it is a real one; 0: as the environment says */
    uint64_t beside;   /* of each device, what is beside that */
    uint64_t history;  /* events kept; 0: recording off */
    const weir_plan *plan; /* to be served; NULL: none */
    bool refused;          /* what failed when recorded is asked for, and freed at once */
    bool learn;            /* between passes the library plans what they repeat */
} session_options;

typedef struct session {
    const script *script;
    const char *backend;
    bool host, torch;
    bool refused;         /* as in the options */
    bool picks_what_goes; /* short of memory, the policy gives back some segments, not all */
    weir_stream *streams; /* by the script's index */
    weir_mempool *pools;  /* the same; {0, 0} is the default one */
    void **slots;
    gates gates;
    uint64_t oom;            /* failed allocations of the pass */
    const script_op *oom_op; /* the first one; NULL when there was none */
    char oom_text[1024];     /* what the library said of the first one; "" when there was none */
    char note[160];          /* what could not be set up as recorded; "" when all was */
    char error[1200];        /* why session_open or session_pass returned false */
} session;

typedef struct pass {
    uint64_t ns; /* of the script's body */
    uint64_t driver_calls, oom;
    uint64_t driver_ns; /* modelled; host back end only */
} pass;

/* Under policy torch the settings of the recorded allocator and the addresses of its segments are taken over. There is no
 * other limit on the host back end: rules change where there is one, as the recorded job's would have. */
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
    uint64_t peak_requested;                    /* the job's own, of every policy the same (script/demand.h) */
    uint64_t peak_reserved, peak_reserved_warm; /* of the cold pass; of the last warm one, 0 when there is none */
    fullest fullest;                            /* of the cold pass */
    uint64_t oom, oom_warm;                     /* of the cold pass; of all warm ones */
    double ns_per_op_cold, ns_per_op_warm;      /* NAN when there are no operations */
    double driver_ns;        /* what the driver calls would have taken (weir/host.h); NAN on a real driver */
    const script_op *oom_op; /* the first allocation that failed, the script's; NULL when none did */
    struct {
        uint64_t served, late, missed, resyncs; /* allocations; of the cold pass, or of all when it is learned */
    } plan;
    char oom_text[1024], note[160];
} measurement;

/* Adds a device's peaks; of equals the first is the fullest. */
void measurement_add(measurement *m, int device, uint64_t requested, uint64_t reserved);

/* Reserved above requested: none where work was waited for that went on when recorded. */
uint64_t measurement_waste(const measurement *m);

/* Reserved of requested; NAN when nothing is requested, or there was no warm pass. */
double measurement_ratio(const measurement *m);
double measurement_ratio_warm(const measurement *m);

/* Called before each pass, from 0. */
typedef void (*measure_progress)(void *user, unsigned pass, unsigned passes);

/* One cold and `warm` warm passes, which may be none, in a session of their own. False: error[] says why. */
bool measure(const script *sc, const trace_settings *recorded, const session_options *options, unsigned warm,
             measure_progress progress, void *user, measurement *out, char error[1200]);

#endif
