/*
 * served: the plan that a replay under policy "plan" serves: read from a file, or made of the trace or a stretch of it.
 * Owner: the caller, until served_release.
 */
#ifndef WEIR_TOOLS_REPLAY_SERVED_H
#define WEIR_TOOLS_REPLAY_SERVED_H

#include "plan/make.h"

/* What "plan:..." asks for. */
typedef struct served_choice {
    uint64_t from, to; /* which operations of the trace to plan, in percent */
    uint64_t time;     /* seconds to search */
    char file[256];    /* "": the plan is made here */
} served_choice;

typedef struct served {
    weir_plan plan;
    made_plan made;
    weir_plan *read;
} served;

/* Reads the text behind the policy's colon; "" means all of the trace. False: error[] says what is wrong. */
bool served_choose(const char *text, served_choice *out, char *error, size_t error_size);

/* False: error[] says what is wrong, or is "" when that was reported already. */
bool served_make(const script *s, const served_choice *choice, served *out, char *error, size_t error_size);
void served_release(served *s);

#endif
