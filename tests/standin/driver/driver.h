/*
 * driver: what the stand-ins for libcuda and libamdhip64 share, for the two drivers have the same numbers for the same
 * failures, the same capture modes, and remember sizes that the host back end wants to hear again. Compiled into each
 * together with the host back end, which does the work. One process-wide lock, standin_lock, guards everything here and
 * what the stand-ins have of their own; the host back end has its own.
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

/* The numbers that both drivers have. */
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

/* ---- script.c: counting, scripted failures, codes ------------------------------------------------------------- */

/* Of each stand-in: its functions, and what it says to a stream that was destroyed. */
extern const char *const standin_names[];
extern const int standin_name_count;
extern const int standin_invalid_stream;

/* Makes the nth next call (1: the very next) of a function fail with `code`, once; 0 forgets that. */
void standin_fail(const char *name, unsigned long nth, int code);
/* Calls of a function so far; those of all functions for NULL. */
unsigned long standin_calls(const char *name);
/* The name of the call that came `back` calls ago (0: the last); NULL when that is not remembered. */
const char *standin_logged(unsigned long back);
/* Counts a call of standin_names[call]; the code that it must fail with, or 0. */
int standin_count(int call);

/* The drivers' code for what the host back end said. */
int standin_code(weir_status status);
/* The same for work on a stream: a capture that does not take it. */
int standin_work_code(weir_status status);
int standin_event_code(weir_status status);

/* ---- records.c ------------------------------------------------------------------------------------------------ */

typedef enum standin_kind { SEGMENT, MANAGED, PINNED, REGISTERED, RESERVATION, CHUNK, STREAM } standin_kind;

typedef struct standin_record {
    standin_kind kind;
    int device;
    uint64_t key, bytes; /* address or handle */
} standin_record;

void standin_remember(standin_kind what, int device, uint64_t key, uint64_t bytes);
/* The record that `key` is or, for reservations, points into; INVALID_VALUE when there is none. */
int standin_recall(standin_kind what, uint64_t key, standin_record *out);
/* Before something is given back, for its address may be another's at once; put back when it is refused:
 *     TRY(standin_forget(SEGMENT, key, &known));
 *     return standin_forgotten(&known, wr_backend_host.segment_free(...)); */
int standin_forget(standin_kind what, uint64_t key, standin_record *out);
int standin_forgotten(const standin_record *known, weir_status status);
void standin_forget_memory(int device); /* lock held */

/* ---- captures.c ----------------------------------------------------------------------------------------------- */

/* Every default stream has a second name, 1. */
void *standin_stream(void *stream);

/* For calls that are not safe while others capture: by the thread's mode, 0 or CAPTURE_UNSUPPORTED with the captures
 * concerned invalidated. */
int standin_unsafe(void);
/* Invalidates every capture, whatever the modes. Whether there was one. */
bool standin_invalidate_all(void);
void standin_forget_captures(int device); /* lock held */

int standin_exchange(int *mode);
/* `blocking`: the stream synchronises with the default one. */
int standin_capture_begin(int device, void *stream, int mode, bool blocking);
int standin_capture_end(int device, void *stream, void **graph);
int standin_capture_state(int device, void *stream, weir_capture_state *state, uint64_t *id);
bool standin_capturing(int device, void *stream);
/* For the default stream: 0, or CAPTURE_IMPLICIT while streams that synchronise with it capture. `uses`: which ends those captures. */
int standin_implicit(int device, void *stream, bool uses);
/* The nodes that the next work on a stream of capture `id` would depend on. The array is good until it is asked for
 * again, by any stream of the capture. */
int standin_capture_tips(int device, void *stream, uint64_t id, void *const **tips, size_t *count);

#endif
