#include "device/plan.h"

#include "base/log.h"
#include "base/meta.h"
#include "device/runtime.h"
#include "observe/plan.h"
#include "pool/pending.h"
#include "pool/plan/learn.h"
#include "pool/plan/serve_fit.h"

#include <inttypes.h>

weir_status wr_device_serve(wr_device *device, const weir_plan *plan, const wr_arena_user *users)
{
    int more = 0;
    wr_routes_change(&device->routes, 1); /* before others may find the plan of no use, and count it out */
    const weir_status status = wr_serve(&device->cache, plan, users, &more);
    wr_routes_change(&device->routes, more - 1);
    return status;
}

static size_t block_bytes(const void *user, size_t requested)
{
    const wr_cache *cache = user;
    return wr_cache_request(cache->pools, 0, wr_stream_default_of(cache->streams), requested).fit.block_bytes;
}

static weir_status plan_history(wr_device *device, weir_plan **plan, const wr_arena_user **users)
{
    wr_history *history = &device->cache.history;
    void *events = NULL;
    uint64_t count = 0, dropped = 0;
    const uint64_t room = wr_history_held(history);
    if (room == 0) {
        wr_log(WR_LOG_INFO, "device %d: no plan: nothing is recorded yet", device->ordinal);
        return WEIR_ERR_NOT_READY;
    }
    WR_TRY(wr_meta_alloc((size_t)room * sizeof(weir_event), "history to learn from", &events));
    wr_history_copy(history, events, NULL, room, &count, &dropped);
    const wr_learn_options options = {
        .fit = block_bytes,
        .user = &device->cache,
        .share = wr_runtime_global.options.value[WR_OPTION_plan_share].number != 0,
        .stop = &device->plan_auto.stop,
    };
    weir_status status = wr_learn(events, (size_t)count, &options, plan, users);
    wr_meta_free(events);
    if (status == WEIR_ERR_NOT_READY && dropped != 0)
        wr_log(WR_LOG_INFO,
               "device %d: the history has the last %" PRIu64
               " events: it must keep more (WEIR_HISTORY) if that is less than two rounds",
               device->ordinal, count);
    return status;
}

weir_status wr_device_learn(wr_device *device, bool *planned)
{
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    size_t released = 0;
    WR_ENSURE(
        wr_history_capacity(&device->cache.history) != 0, WEIR_ERR_NOT_SUPPORTED,
        "weir_plan_learn: nothing is recorded; call weir_history_start(), or set WEIR_HISTORY, with at least three events "
        "for each allocation of two rounds");
    WR_TRY(wr_serve_check(&device->cache));
    const wr_serve_fit fit = wr_serve_fits(&device->cache);
    if (fit != WR_FITS_NOT) WR_TRY(wr_serve_settle(&device->cache));
    if (fit == WR_FITS) return WEIR_OK;
    WR_TRY(plan_history(device, &plan, &users));
    if (fit == WR_FITS_ITS_STREAMS && !wr_serve_lacks(&device->cache, users, plan->arena_count)) {
        wr_plan_destroy(plan);
        return WEIR_OK; /* what repeats is planned already */
    }
    /* The free memory was laid out for another course of requests; the plan takes what it needs anew. What is not taken
     * back stays, as a source's may for good. */
    wr_pending_poll(&device->cache);
    wr_clean_up(wr_cache_trim(&device->cache, NULL, SIZE_MAX, &released));
    weir_status status = wr_device_serve(device, plan, users);
    wr_plan_destroy(plan);
    WR_TRY(status);
    wr_log(WR_LOG_INFO, "device %d: serving a plan made of its history", device->ordinal);
    *planned = true;
    return WEIR_OK;
}
