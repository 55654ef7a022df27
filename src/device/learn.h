/*
 * learn: a plan of what the program repeats, from the device's own history, and serving it.
 */
#ifndef WR_DEVICE_LEARN_H
#define WR_DEVICE_LEARN_H

#include "device/device.h"
#include "pool/guest.h"
#include "weir/plan.h"

/* Serves a plan, or none (NULL), to the device's default pool. */
WR_CHECKED weir_status wr_device_serve(wr_device *device, const weir_plan *plan, const wr_arena_user *users);

/* Unless a plan is served and fits: makes one of the last rounds, serves it, and gives back what was held without it. No lock
 * held; takes the time that planning takes. *planned: a new one is served. WEIR_ERR_NOT_READY: nothing repeats; WEIR_ERR_NOT_SUPPORTED,
 * with nothing changed and for ever: nothing is recorded, or as wr_serve_check. */
WR_CHECKED weir_status wr_device_learn(wr_device *device, bool *planned);

#endif
