/*
 * driver: shared by the stand-ins for libcuda and libamdhip64. The two drivers use the same numbers for the same
 * failures and the same capture modes, and both remember sizes that the host back end must be told again. It is
 * compiled into each stand-in together with the host back end, which does the work. One process-wide lock,
 * standin_lock, guards everything here and the stand-ins' own state; the host back end has its own locks.
 */
#ifndef WEIR_TESTS_STANDIN_DRIVER_H
#define WEIR_TESTS_STANDIN_DRIVER_H

#include "backend/backend.h"

#include <pthread.h>
#include <stdbool.h>

extern pthread_mutex_t standin_lock;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int try_code_ = (call);                                                                                        \
        if (try_code_ != 0) return try_code_;                                                                          \
    } while (0)

/* Numbers that both drivers share. */
enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    UNKNOWN = 999
};

/* ---- script.c: counting, scripted failures, codes ---------------------------------------------------------------- */

/* Defined by each stand-in: its functions, and its answer about a destroyed stream. */
extern const char *const standin_names[];
extern const int standin_name_count;
extern const int standin_invalid_stream;

/* Makes the nth next call (1: the very next) of a function fail with `code`, once; 0 forgets that. */
void standin_fail(const char *name, unsigned long nth, int code);
/* Calls of a function so far; those of all functions for NULL. */
unsigned long standin_calls(const char *name);
/* The name of the call that came `back` calls ago (0: the last); NULL when that is not remembered. */
const char *standin_logged(unsigned long back);
/* Counts a call of standin_names[call]. Returns the code that it must fail with, or 0. */
int standin_count(int call);

/* The drivers' code for a status of the host back end. */
int standin_code(weir_status status);
/* The same for work on a stream, which a capture may not accept. */
int standin_work_code(weir_status status);
int standin_event_code(weir_status status);

/* ---- records.c --------------------------------------------------------------------------------------------------- */

typedef enum standin_kind {
    SEGMENT,
    MANAGED,
    PINNED,
    REGISTERED,
    RESERVATION,
    CHUNK,
    STREAM,
    TIMED,    /* an event */
    RECORDED, /* an event, outside captures; the stream takes the place of a size */
    LEFT      /* a stream in a capture that is over; its state takes the place of a size */
} standin_kind;

typedef struct standin_record {
    standin_kind kind;
    int device;
    uint64_t key, bytes; /* address or handle */
} standin_record;

void standin_remember(standin_kind what, int device, uint64_t key, uint64_t bytes);
/* The record that `key` is or, for reservations, points into; INVALID_VALUE when there is none. */
int standin_recall(standin_kind what, uint64_t key, standin_record *out);
/* Called before something is given back, since its address may be reused at once; undone when that is refused:
 *     TRY(standin_forget(SEGMENT, key, &known));
 *     return standin_forgotten(&known, wr_backend_host.segment_free(...)); */
int standin_forget(standin_kind what, uint64_t key, standin_record *out);
int standin_forgotten(const standin_record *known, weir_status status);
void standin_forget_memory(int device); /* lock held */

/* ---- captures.c -------------------------------------------------------------------------------------------------- */

/* Resolves the second name of the default stream, 1. */
void *standin_stream(void *stream);

/* For calls that are unsafe during captures. Depending on the thread's mode, returns 0, or CAPTURE_UNSUPPORTED after
 * invalidating the captures concerned. */
int standin_unsafe(void);
/* Invalidates every capture in any mode. Returns whether there was one. */
bool standin_invalidate_all(void);
void standin_forget_captures(int device); /* lock held */

int standin_exchange(int *mode);
/* `blocking`: the stream synchronises with the default one. */
int standin_capture_begin(int device, void *stream, int mode, bool blocking);
int standin_capture_end(int device, void *stream, void **graph);
int standin_capture_state(int device, void *stream, weir_capture_state *state, uint64_t *id);
bool standin_capturing(int device, void *stream);
/* For calls on the default stream: 0, or CAPTURE_IMPLICIT while streams that synchronise with it capture. `uses`: the
 * call uses the stream, which ends those captures. */
int standin_implicit(int device, void *stream, bool uses);
/* The nodes that the next work on a stream of capture `id` would depend on. The array is valid until the next query,
 * for any stream of the capture. */
int standin_capture_tips(int device, void *stream, uint64_t id, void *const **tips, size_t *count);

#endif
