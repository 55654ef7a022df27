#include "handle/handle_native.h"

#include "base/log.h"
#include "handle/handle_bind.h"
#include "stream/quiet.h"

#include <string.h>

static bool create_syncs(const wr_handle_pool *pool)
{
    const wr_kind *kind = pool->kind;
    const bool may = kind->flags & WEIR_HANDLE_CREATE_SYNCS;
    return may && (!kind->create_syncs || kind->create_syncs(kind->self, pool->site.caps));
}

/* No stream captures from here on, and none begins to before wr_quiet_end(). Work is not waited for: it may need the
 * caller to go on. */
static weir_status keep_captures_out(const wr_handle_pool *pool)
{
    wr_stream_table *streams = pool->site.streams;
    const weir_status status = wr_quiet_begin_at_once(streams);
    WR_ENSURE(status != WEIR_ERR_CAPTURE, WEIR_ERR_CAPTURE,
              "%s: no handle is idle, and creating one would invalidate the capture of a stream%s; get the handle "
              "before the capture begins, or have another thread give one back (weir_handle_release)",
              pool->kind->name, streams->captured_anywhere ? ", of whatever device" : " of the device");
    return status;
}

/* Of a create that failed. While a stream captures it stays: destroying it would end the capture. */
static void drop_half_made(const wr_handle_pool *pool, void *native)
{
    const bool harmful = wr_handle_destroy_is_harmful(pool);
    weir_status quiet = WEIR_OK;
    if (harmful) wr_clean_up(quiet = wr_quiet_begin_at_once(pool->site.streams));
    if (quiet != WEIR_OK) return;
    wr_clean_up(wr_handle_native_destroy(pool, native));
    if (harmful) wr_quiet_end();
}

static int create_in_scope(const wr_handle_pool *pool, void **native, weir_status *status)
{
    weir_backend_scope scope;
    const bool syncs = create_syncs(pool);
    int code = 0;
    *status = syncs ? keep_captures_out(pool) : WEIR_OK;
    if (*status != WEIR_OK) return 0;
    *status = wr_handle_scope_enter(pool, &scope);
    if (*status == WEIR_OK) {
        code = pool->kind->create(pool->kind->self, pool->site.device, pool->site.caps, native);
        wr_handle_scope_leave(pool, &scope);
    }
    if (syncs) wr_quiet_end();
    if (code != 0 && pool->kind->keeps_failed && *native) drop_half_made(pool, *native);
    if (code != 0) *native = NULL;
    return code;
}

/* Libraries of vendors need a GPU, which the host back end has none of. */
static weir_status refuse_create(const wr_handle_pool *pool, int code)
{
    const wr_kind *kind = pool->kind;
    const weir_status status = wr_handle_refused(kind, "create", code);
    const bool host = strcmp(pool->site.backend->name, "host") == 0;
    if (kind->load && host) wr_fail_prefix("the host back end is in use, which has no GPU for libraries: ");
    return status;
}

weir_status wr_handle_native_create(const wr_handle_pool *pool, void **native, wr_handle_measure *measure)
{
    const wr_kind *kind = pool->kind;
    weir_status status = WEIR_OK;
    int code = create_in_scope(pool, native, &status);
    if (status == WEIR_OK && code != 0 && kind->is_out_of_memory && kind->is_out_of_memory(kind->self, code)) {
        wr_log(WR_LOG_INFO, "%s: create found no memory; emptying caches and trying again", kind->name);
        pool->site.make_room(pool->site.device_context);
        wr_handle_measure_again(pool, measure);
        code = create_in_scope(pool, native, &status);
    }
    if (status != WEIR_OK) return status;
    if (code != 0) return refuse_create(pool, code);
    WR_ENSURE(*native, WEIR_ERR_LIBRARY, "%s: create reported success but gave no handle", kind->name);
    return WEIR_OK;
}

weir_status wr_handle_native_destroy(const wr_handle_pool *pool, void *native)
{
    weir_backend_scope scope;
    WR_TRY(wr_handle_scope_enter(pool, &scope));
    int code = pool->kind->destroy(pool->kind->self, native);
    wr_handle_scope_leave(pool, &scope);
    return code == 0 ? WEIR_OK : wr_handle_refused(pool->kind, "destroy", code);
}
