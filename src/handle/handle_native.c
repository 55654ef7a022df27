#include "handle/handle_native.h"

#include "base/log.h"
#include "handle/handle_bind.h"

#include <string.h>

static int create_in_scope(const wr_handle_pool *pool, void **native, weir_status *scope_status)
{
    weir_backend_scope scope;
    *scope_status = wr_handle_scope_enter(pool, &scope);
    if (*scope_status != WEIR_OK) return 0;
    int code = pool->kind->create(pool->kind->self, pool->site.device, native);
    wr_handle_scope_leave(pool, &scope);
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
