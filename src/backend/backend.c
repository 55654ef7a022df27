#include "backend/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

atomic_uint_fast64_t wr_driver_calls[WEIR_BACKEND_ENTRY_COUNT];

/* In the order in which "auto" tries them. A new back end is one line here and its declaration in backend.h. */
static const weir_backend *const tables[] = {
    &wr_backend_cuda,
    &wr_backend_hip,
    &wr_backend_host,
};
#define TABLE_COUNT (sizeof tables / sizeof tables[0])

static const char *const entry_names[WEIR_BACKEND_ENTRY_COUNT] = {
#define X(name) #name,
    WEIR_BACKEND_ENTRIES(X)
#undef X
};

/* Entries that come together or not at all: neighbours in WEIR_BACKEND_ENTRIES. All others are required. */
static const struct {
    enum weir_backend_entry first, last;
} groups[] = {
    { WEIR_BACKEND_device_get_current, WEIR_BACKEND_device_set_current },
    { WEIR_BACKEND_vm_reserve, WEIR_BACKEND_vm_access },
    { WEIR_BACKEND_capture_begin, WEIR_BACKEND_graph_destroy },
    { WEIR_BACKEND_scope_enter, WEIR_BACKEND_scope_leave },
    { WEIR_BACKEND_host_register, WEIR_BACKEND_host_unregister },
    { WEIR_BACKEND_managed_alloc, WEIR_BACKEND_managed_free },
    { WEIR_BACKEND_vm_create_exportable, WEIR_BACKEND_vm_import },
    { WEIR_BACKEND_capture_tips, WEIR_BACKEND_node_dependencies },
    { WEIR_BACKEND_stream_check, WEIR_BACKEND_stream_check },
};
#define GROUP_COUNT (sizeof groups / sizeof groups[0])

uint64_t wr_backend_calls(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < WEIR_BACKEND_ENTRY_COUNT; i++)
        if (i != WEIR_BACKEND_clock_ns) sum += atomic_load_explicit(&wr_driver_calls[i], memory_order_relaxed);
    return sum;
}

static void clear_calls(void)
{
    for (size_t i = 0; i < WEIR_BACKEND_ENTRY_COUNT; i++)
        atomic_store_explicit(&wr_driver_calls[i], 0, memory_order_relaxed);
}

/* Whether `entry` may be missing, because all of its group is; otherwise *with is an entry of the group that is
 * there. */
static bool may_be_missing(const bool *present, enum weir_backend_entry entry, const char **with)
{
    for (size_t i = 0; i < GROUP_COUNT; i++) {
        if (entry < groups[i].first || entry > groups[i].last) continue;
        for (enum weir_backend_entry other = groups[i].first; other <= groups[i].last; other++)
            if (present[other]) *with = entry_names[other];
        return *with == NULL;
    }
    return false;
}

weir_status wr_backend_check(const weir_backend *backend)
{
    WR_ENSURE(backend->name != NULL, WEIR_ERR_INVALID_ARGUMENT, "a back end has no name");
    WR_ENSURE(
        backend->size >= sizeof(weir_backend), WEIR_ERR_INCOMPATIBLE,
        "back end \"%s\" has a table of %zu bytes, but %zu are needed; compile it with the headers of this version of "
        "weir",
        backend->name, backend->size, sizeof(weir_backend));
    const bool present[] = {
#define X(name) backend->name != NULL,
        WEIR_BACKEND_ENTRIES(X)
#undef X
    };
    for (enum weir_backend_entry entry = 0; entry < WEIR_BACKEND_ENTRY_COUNT; entry++) {
        const char *with = NULL;
        if (present[entry] || may_be_missing(present, entry, &with)) continue;
        if (with != NULL)
            return wr_fail(WEIR_ERR_INCOMPATIBLE,
                           "back end \"%s\" has %s but not %s; provide all functions of the group, or none",
                           backend->name, with, entry_names[entry]);
        return wr_fail(WEIR_ERR_INCOMPATIBLE, "back end \"%s\" does not have %s, which is required", backend->name,
                       entry_names[entry]);
    }
    return WEIR_OK;
}

/* Opens a table and makes sure that it has a device. */
static weir_status try_table(const weir_backend *table, const weir_backend_config *config)
{
    int count = 0;
    WR_TRY(wr_backend_check(table));
    WR_TRY(wr_driver(table, open, config));
    weir_status status = wr_driver(table, device_count, &count);
    if (status == WEIR_OK && count > 0) return WEIR_OK;
    if (status == WEIR_OK) status = wr_fail(WEIR_ERR_NO_DEVICE, "back end \"%s\" has no device", table->name);
    wr_clean_up(wr_driver(table, close));
    return status;
}

/* The driver or device does not exist here; any other failure comes from one that does. */
static bool is_absent(weir_status status)
{
    return status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE;
}

/* The host back end is not a fallback for a GPU that cannot be used: the program's kernels would fault on host
 * memory. */
static weir_status open_first(const weir_backend_config *config, const weir_backend **backend)
{
    const weir_backend *broken = NULL;
    weir_status status = WEIR_ERR_NO_LIBRARY;
    for (size_t i = 0; i < TABLE_COUNT && status != WEIR_OK && !(broken && tables[i] == &wr_backend_host); i++) {
        wr_clean_up(status = try_table(tables[i], config)); /* that one is absent is no failure to be told */
        if (status == WEIR_OK) *backend = tables[i];
        if (status != WEIR_OK) clear_calls(); /* they were made to another one */
        if (status != WEIR_OK && !is_absent(status) && !broken) broken = tables[i];
    }
    if (status == WEIR_OK || !broken) return status;
    status = try_table(broken, config); /* for its error text, or it may work by now */
    if (status == WEIR_OK) *backend = broken;
    if (status != WEIR_OK) wr_fail_prefix("to run without a GPU, set WEIR_BACKEND=host; ");
    return status;
}

static weir_status open_named(const char *name, const weir_backend_config *config, const weir_backend **backend)
{
    char known[128] = "";
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(tables[i]->name, name) == 0) {
            WR_TRY(try_table(tables[i], config));
            *backend = tables[i];
            return WEIR_OK;
        }
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s\"%s\"", i > 0 ? ", " : "", tables[i]->name);
    }
    return wr_fail(WEIR_ERR_NO_LIBRARY, "this build has no back end \"%s\"; set WEIR_BACKEND to one of \"auto\", %s",
                   name, known);
}

weir_status wr_backend_open(const char *name, const weir_backend_config *config, const weir_backend **backend)
{
    clear_calls();
    weir_status status = strcmp(name, "auto") == 0 ? open_first(config, backend) : open_named(name, config, backend);
    if (status != WEIR_OK) clear_calls();
    return status;
}

weir_status wr_backend_close(const weir_backend *backend)
{
    weir_status status = wr_driver(backend, close);
    clear_calls();
    return status;
}
