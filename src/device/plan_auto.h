/*
 * plan_auto: a thread that plans what the program repeats, under the option plan=auto. It looks at the device's history
 * a few times a second, less and less often while nothing repeats, and rarely while a plan is served and fits. It ends
 * where no plan can be served. It holds no lock while it plans. It calls the driver only to serve a new plan and, once
 * that fits, to give back free memory that the plan does not need.
 * Owner: the device, from its opening until it stops. Lock: its own, which is a leaf, for `wake`.
 */
#ifndef WR_DEVICE_PLAN_AUTO_H
#define WR_DEVICE_PLAN_AUTO_H

#include "base/lock.h"
#include "base/status.h"

#include <stdatomic.h>

typedef struct wr_plan_auto {
    struct wr_device *device; /* NULL: no thread runs */
    pthread_t thread;
    wr_lock lock;
    pthread_cond_t wake;
    atomic_bool stop; /* also ends planning */
} wr_plan_auto;

WR_CHECKED weir_status wr_plan_auto_start(wr_plan_auto *planner, struct wr_device *device);

/* Waits for the thread to end, which gives up what it plans. Does nothing when none runs. */
void wr_plan_auto_stop(wr_plan_auto *planner);

#endif
