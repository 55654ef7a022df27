/*
 * make: makes a plan of a problem, and checks whether a plan solves a problem.
 */
#ifndef WEIR_TOOLS_PLAN_MAKE_H
#define WEIR_TOOLS_PLAN_MAKE_H

#include "plan/problem.h"
#include "plan/solve.h"
#include "weir/plan.h"

/* How an arena was planned, in addition to what the plan says. */
typedef struct arena_facts {
    size_t residents;
    uint64_t load;
    const char *how;
} arena_facts;

typedef struct made_plan {
    weir_plan plan;
    weir_plan_arena *arenas; /* plan.arenas */
    weir_plan_entry *entries;
    arena_facts *facts; /* by arena */
} made_plan;

/* Owner of *out: the caller, until made_plan_release. The time is divided among the arenas by their numbers of
 * allocations. */
void make_plan(const problem *p, const solve_options *options, bool streams_apart, made_plan *out);
void made_plan_release(made_plan *m);

/* True when every allocation of the recording has its entry, and no two that live at once overlap. Else error[] says
 * what is wrong. */
bool plan_serves(const weir_plan *plan, const problem *p, char *error, size_t error_size);

/* True when the plan is consistent: by the lives that it states, no two blocks overlap. */
bool plan_holds(const weir_plan *plan, char *error, size_t error_size);

#endif
