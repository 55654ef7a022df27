/*
 * demand: what a script has in use at its most. It is the job's own, the same under every policy: a library's statistics also
 * hold what it has not yet seen complete.
 */
#ifndef WEIR_TOOLS_SCRIPT_DEMAND_H
#define WEIR_TOOLS_SCRIPT_DEMAND_H

#include "script/script.h"

/* Most bytes requested and not yet freed and complete: each device's own peak, which goes into `each`, and their sum. `each`
 * has room for all devices, or is NULL. `refused`: what failed when recorded is had, and freed at once. */
uint64_t script_demand(const script *s, bool refused, uint64_t *each);

#endif
