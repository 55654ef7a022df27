#include "device/plan_auto.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include "device/plan.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* Milliseconds between two looks at the history: at first, and at most, reached by doubling. */
enum { PAUSE_LEAST = 100, PAUSE_MOST = 10000 };

/* A pause is at least so many times as long as the look before it: a look keeps a processor busy, with a long history
 * or many blocks for seconds. */
enum { PAUSE_TIMES = 4 };

/* False: the thread is to end. */
static bool rest(wr_plan_auto *planner, uint64_t milliseconds)
{
    const struct timespec deadline = wr_lock_deadline(milliseconds * UINT64_C(1000000));
    int late = 0;
    wr_lock_acquire(&planner->lock);
    while (!planner->stop && late != ETIMEDOUT) late = wr_lock_wait_until(&planner->lock, &planner->wake, &deadline);
    const bool goes_on = !planner->stop;
    wr_lock_release(&planner->lock);
    return goes_on;
}

static uint32_t longer(uint32_t pause)
{
    return 2 * pause < PAUSE_MOST ? 2 * pause : PAUSE_MOST;
}

/* After a new plan the next look comes soon, but ever later while plan follows plan and none fits for long. */
static void *learn(void *argument)
{
    wr_plan_auto *planner = argument;
    uint32_t pause = PAUSE_LEAST, soon = PAUSE_LEAST;
    uint64_t tired = 0; /* milliseconds */
    while (rest(planner, pause > tired ? pause : tired)) {
        bool planned = false;
        const uint64_t begin = wr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        weir_status status = wr_device_learn(planner->device, &planned);
        tired = PAUSE_TIMES * (wr_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / 1000000;
        if (status != WEIR_OK && status != WEIR_ERR_NOT_READY)
            wr_log(WR_LOG_WARN, "plan=auto: no plan was made: %s", weir_error_text());
        if (status == WEIR_ERR_NOT_SUPPORTED) return NULL;
        if (planned) {
            pause = soon;
            soon = longer(soon);
        } else {
            if (pause == PAUSE_MOST) soon = PAUSE_LEAST;
            pause = longer(pause);
        }
    }
    return NULL;
}

weir_status wr_plan_auto_start(wr_plan_auto *planner, wr_device *device)
{
    int failed = wr_lock_condition_init(&planner->wake);
    WR_ENSURE(failed == 0, WEIR_ERR_OUT_OF_HOST_MEMORY, "no condition variable for plan=auto");
    wr_lock_init(&planner->lock, WR_RANK_LEAF, "plan_auto");
    planner->device = device;
    failed = wr_worker_start(&planner->thread, learn, planner);
    if (failed == 0) return WEIR_OK;
    planner->device = NULL;
    wr_lock_destroy(&planner->lock);
    pthread_cond_destroy(&planner->wake);
    return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY,
                   "option plan: auto needs a thread, which could not be made: %s; raise the limits on threads and "
                   "memory (ulimit -u, -v), or unset it",
                   strerror(failed));
}

void wr_plan_auto_stop(wr_plan_auto *planner)
{
    if (!planner->device) return;
    wr_lock_acquire(&planner->lock);
    planner->stop = true;
    pthread_cond_signal(&planner->wake);
    wr_lock_release(&planner->lock);
    pthread_join(planner->thread, NULL);
    wr_lock_destroy(&planner->lock);
    pthread_cond_destroy(&planner->wake);
    *planner = (wr_plan_auto){ 0 };
}
