/*
 * backend: the drivers built in, the one in use, and the only way to call its table.
 * Owner: the open library. The chosen table is immutable while the library is open, so no lock.
 */
#ifndef WR_BACKEND_BACKEND_H
#define WR_BACKEND_BACKEND_H

#include "base/status.h"
#include "weir/backend.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

/* Calls per entry since the library was opened. Relaxed, because they only count. */
extern atomic_uint_fast64_t wr_driver_calls[WEIR_BACKEND_ENTRY_COUNT];

/* Counts a call and makes it: wr_driver(backend, event_query, device, event). The only way to call a driver, except for
 * device_get_current on the hit path. */
#define wr_driver(backend, entry, ...)                                                                                 \
    (atomic_fetch_add_explicit(&wr_driver_calls[WEIR_BACKEND_##entry], 1, memory_order_relaxed),                       \
     (backend)->entry(__VA_ARGS__))

/* Checks that required entries are set, optional groups are whole, and the table is at least as large as this
 * weir's. */
WR_CHECKED weir_status wr_backend_check(const weir_backend *backend);

/* Opens the back end called `name`, after wr_backend_check(). "auto" is the first in the table that has a device. The
 * host is the last, and is not taken if another driver fails for any reason but a missing library or device: that is an
 * error. On failure nothing is left open and *backend is untouched. */
WR_CHECKED weir_status wr_backend_open(const char *name, const weir_backend_config *config,
                                       const weir_backend **backend);

/* Closes it and clears the counts. */
weir_status wr_backend_close(const weir_backend *backend);

/* Sum of wr_driver_calls, without clock_ns, which calls no driver. */
uint64_t wr_backend_calls(void);

/* Around calls into foreign code, where the back end has something to do there (weir/backend.h). */
WR_CHECKED static inline weir_status wr_backend_scope_enter(const weir_backend *backend, int device,
                                                            weir_backend_scope *scope)
{
    return backend->scope_enter ? wr_driver(backend, scope_enter, device, scope) : WEIR_OK;
}

static inline void wr_backend_scope_leave(const weir_backend *backend, weir_backend_scope *scope)
{
    if (backend->scope_leave) backend->scope_leave(scope);
}

/* host_register and host_unregister take only whole pages of the system. */
WR_CHECKED static inline weir_status wr_backend_check_pages(const char *call, const void *base, size_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = (uintptr_t)base;
    WR_ENSURE(bytes > 0 && start % page == 0 && bytes % page == 0 && start != 0 && bytes <= UINTPTR_MAX - start,
              WEIR_ERR_INVALID_ARGUMENT, "%s: %zu bytes at %p are not a whole number of pages of %" PRIu64 " bytes",
              call, bytes, base, page);
    return WEIR_OK;
}

/* The tables built in. Each is defined in its own folder, and only the registry names it. */
extern const weir_backend wr_backend_cuda;
extern const weir_backend wr_backend_hip;
extern const weir_backend wr_backend_host;

/* Whether no thread is in the middle of a function of weir/host.h, for whose lock a child of fork() would wait. */
bool wr_host_at_rest(void);

#endif
