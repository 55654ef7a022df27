/*
 * Plans, as users see them.
 */
#include "observe/plan.h"
#include "device/plan.h"
#include "thread/thread.h"

/* Of a plan that the program may have made itself. */
static weir_status check_arrays(const char *call, const weir_plan *plan)
{
    WR_ENSURE((plan->arenas || plan->arena_count == 0) && (plan->entries || plan->entry_count == 0),
              WEIR_ERR_INVALID_ARGUMENT, "%s: the plan counts arenas or entries, but has no array of them", call);
    WR_ENSURE(plan->arena_count <= SIZE_MAX / 4 / sizeof *plan->arenas &&
                  plan->entry_count <= SIZE_MAX / 4 / sizeof *plan->entries,
              WEIR_ERR_INVALID_ARGUMENT, "%s: the plan counts more arenas or entries than there can be", call);
    return WEIR_OK;
}

weir_status weir_plan_decode(const void *bytes, size_t count, weir_plan **plan)
{
    WR_ENSURE((bytes || count == 0) && plan, WEIR_ERR_INVALID_ARGUMENT, "weir_plan_decode: bytes or plan is NULL");
    return wr_plan_decode(bytes, count, plan);
}

weir_status weir_plan_encode(const weir_plan *plan, void *buffer, size_t capacity, size_t *count)
{
    WR_ENSURE(plan && count, WEIR_ERR_INVALID_ARGUMENT, "weir_plan_encode: plan or count is NULL");
    WR_TRY(check_arrays("weir_plan_encode", plan));
    uint64_t bytes = wr_plan_bytes(plan);
    *count = (size_t)bytes;
    if (!buffer) return WEIR_OK;
    WR_ENSURE(capacity >= bytes, WEIR_ERR_INVALID_ARGUMENT,
              "weir_plan_encode: the buffer has %zu bytes, but the plan needs %llu", capacity,
              (unsigned long long)bytes);
    wr_plan_encode(plan, buffer);
    return WEIR_OK;
}

void weir_plan_destroy(weir_plan *plan)
{
    wr_plan_destroy(plan);
}

weir_status weir_plan_serve(int device, const weir_plan *plan)
{
    wr_device *d = NULL;
    if (plan) WR_TRY(check_arrays("weir_plan_serve", plan));
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_device_serve(d, plan, NULL);
}

weir_status weir_plan_learn(int device)
{
    wr_device *d = NULL;
    bool planned = false;
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_device_learn(d, &planned);
}
