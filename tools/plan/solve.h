/*
 * solve: the lowest placement of a layout that can be found in the given time.
 * Owner: the caller of solve, until solution_release.
 */
#ifndef WEIR_TOOLS_PLAN_SOLVE_H
#define WEIR_TOOLS_PLAN_SOLVE_H

#include "plan/crew.h"

typedef struct solve_options {
    uint64_t seed;
    unsigned threads; /* at least 1 */
    double seconds;   /* after this, only a first placement is still completed */
    uint64_t work;    /* limit for each exact search and annealing, in sections looked at; 0: some seconds */
    plan_progress progress;
    void *user;
} solve_options;

typedef struct solution {
    uint64_t *offset; /* of the layout's blocks */
    uint64_t height;
    uint64_t load;  /* the most bytes live at once */
    uint64_t bound; /* no placement is lower: the load, or more where an exact search proved more */
    size_t parts, residents;
    const char *how; /* what placed the highest part */
} solution;

void solve(const layout *l, const solve_options *options, solution *out);
void solution_release(solution *s);

#endif
