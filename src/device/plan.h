/*
 * plan: makes a plan of what the program repeats, from the device's own history, and serves it.
 */
#ifndef WR_DEVICE_PLAN_H
#define WR_DEVICE_PLAN_H

#include "device/device.h"
#include "pool/plan/place_guests.h"
#include "weir/plan.h"

/* Serves a plan, or none (NULL), to the device's default pool. */
WR_CHECKED weir_status wr_device_serve(wr_device *device, const weir_plan *plan, const wr_arena_user *users);

/* Makes a plan of the last rounds, gives back idle memory held without it, and serves it. If a plan is served and fits,
 * only settles that (wr_serve_settle). No lock held; blocks for as long as planning takes. *planned: set where a new
 * plan is served. WEIR_ERR_NOT_READY: nothing repeats yet. WEIR_ERR_NOT_SUPPORTED, final and with nothing changed:
 * recording is off, or as wr_serve_check. */
WR_CHECKED weir_status wr_device_learn(wr_device *device, bool *planned);

#endif
