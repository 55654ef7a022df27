/*
 * demand: the peak of memory in use by a script. It is the job's own and the same under every policy, unlike a
 * library's statistics, which include frees that it has not yet seen complete.
 */
#ifndef WEIR_TOOLS_SCRIPT_DEMAND_H
#define WEIR_TOOLS_SCRIPT_DEMAND_H

#include "script/script.h"

/* The sum of all devices' peaks of requested bytes, up to the completion of each free. `each`, which has room for all
 * devices or is NULL, gets the peak of each device. `refused`: allocations that failed when recorded succeed, and are
 * freed at once. */
uint64_t script_demand(const script *s, bool refused, uint64_t *each);

#endif
