#include "backend/library.h"

#include "backend/workspace.h"
#include "base/dl.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*any_function)(void);
typedef int (*bind_function)(void *self, void *handle, void *native_stream);

enum {
    UNKNOWN = -1, /* a value that is not reset */
    RESETS = sizeof(((wr_library_row *)NULL)->reset) / sizeof(wr_reset),
    OUT_OF_MEMORY_CODES = sizeof(((wr_library_row *)NULL)->out_of_memory) / sizeof(int)
};

/* A row and what was loaded for it. */
typedef struct library {
    const wr_library_row *row;
    wr_kind kind;
    wr_lock lock;       /* guards loading */
    atomic_bool loaded; /* from then on all that follows is constant */
    void *file;
    size_t workspace_asked; /* by the environment; 0: nothing */
    any_function create, destroy, set_stream;
    any_function set_workspace, set_memory, version, error_text; /* NULL: absent */
    any_function device_count, memory_info, free_memory;         /* NULL: absent */
    any_function peek_error, take_error;                         /* NULL: absent */
    any_function reset[RESETS], fresh_value;                     /* NULL: absent, skipped */
    atomic_int fresh; /* what fresh_value told of the last new handle, or UNKNOWN */
} library;

static wr_lock table_lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "table of libraries");
static library table[WEIR_HANDLE_KIND_MAX]; /* by kind */

/* The change in the environment, which belongs to the process, for the creates that are underway: the first of them
 * makes it, the last undoes it. All rows that need a change need the same one. A program that changes the environment
 * from another thread at that time races with this, as it would with itself. */
static struct {
    wr_lock lock;
    int users;
    const char *changed; /* the variable; NULL: none */
    char *before;        /* its value; NULL: it was not set */
} environment = { .lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "environment") };

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* dlsym returns an object pointer, which POSIX allows to be copied into a function pointer. */
static any_function as_function(void *address)
{
    any_function function;
    memcpy(&function, &address, sizeof function);
    return function;
}

static weir_status find_required(void *file, const wr_library_row *row, const char *symbol, any_function *function)
{
    void *address = NULL;
    if (symbol == NULL) return WEIR_OK;
    WR_TRY(wr_dl_symbol(file, row->library != NULL ? row->library : row->name, symbol, &address));
    *function = as_function(address);
    return WEIR_OK;
}

static any_function find_optional(void *file, const char *symbol)
{
    return symbol != NULL ? as_function(wr_dl_find(file, symbol)) : NULL;
}

weir_status wr_library_one_runtime(const char *name, void *file, const char *const *sonames)
{
    const char *first = NULL;
    void *one = NULL;
    char path[256];
    for (; *sonames != NULL; sonames++) {
        void *present = wr_dl_present(*sonames);
        wr_dl_close(present); /* its user keeps it loaded */
        if (present == NULL || present == one) continue;
        if (one == NULL) {
            one = present;
            first = *sonames;
            continue;
        }
        wr_dl_file(file, path, sizeof path);
        return wr_fail(
            WEIR_ERR_INCOMPATIBLE,
            "library %s (%s): the process has loaded both %s and %s, which do not know each other's streams and "
            "memory; use files of one release (WEIR_LIB_HIP and the other WEIR_LIB_ variables name them)",
            name, path, first, *sonames);
    }
    return WEIR_OK;
}

static weir_status find_functions(library *l, void *file)
{
    const wr_library_row *row = l->row;
    WR_TRY(find_required(file, row, row->create, &l->create));
    WR_TRY(find_required(file, row, row->destroy, &l->destroy));
    WR_TRY(find_required(file, row, row->set_stream, &l->set_stream));
    l->set_workspace = find_optional(file, row->set_workspace);
    l->set_memory = find_optional(file, row->set_memory);
    l->version = find_optional(file, row->version);
    l->error_text = find_optional(file, row->error_text);
    l->device_count = find_optional(file, row->device_count);
    l->memory_info = find_optional(file, row->memory_info);
    l->free_memory = find_optional(file, row->free_memory);
    l->peek_error = find_optional(file, row->peek_error);
    l->take_error = find_optional(file, row->take_error);
    l->fresh_value = find_optional(file, row->fresh_value);
    atomic_init(&l->fresh, UNKNOWN);
    for (int i = 0; i < RESETS && row->reset[i].form != WR_RESET_END; i++)
        l->reset[i] = find_optional(file, row->reset[i].symbol);
    return WEIR_OK;
}

/* A refused library is unloaded, with the runtime that it may have loaded: as long as that stays, all others are
 * refused too. */
static weir_status load_locked(library *l)
{
    const wr_library_row *row = l->row;
    void *file = NULL;
    WR_TRY(wr_dl_open(row->library != NULL ? row->library : row->name, row->sonames, &file));
    weir_status status = row->runtimes != NULL ? wr_library_one_runtime(row->name, file, row->runtimes) : WEIR_OK;
    if (status == WEIR_OK) status = find_functions(l, file);
    if (status == WEIR_OK)
        l->file = file;
    else
        wr_dl_close(file);
    return status;
}

/* As the operator set it, also while a create has changed it. */
static const char *value_locked(const char *variable)
{
    const bool changed = environment.changed && strcmp(environment.changed, variable) == 0;
    return changed ? environment.before : getenv(variable);
}

/* What the environment asks for; 0: nothing. */
static size_t workspace_asked(const wr_library_row *row)
{
    size_t bytes = 0;
    const char *value = NULL, *const *variable = row->workspace_variables;
    wr_lock_acquire(&environment.lock);
    while (*variable && !(value = value_locked(*variable))) variable++;
    if (value && !wr_workspace_read(value, &bytes)) {
        bytes = 0;
        wr_log(WR_LOG_WARN,
               "%s=%s does not ask for a workspace (:SIZE:COUNT, in KiB and pieces, as in :4096:2:16:8; at most 64 GiB "
               "in sum); handles of %s get one of the usual size",
               *variable, value, row->name);
    }
    wr_lock_release(&environment.lock);
    return bytes;
}

static weir_status load(void *self)
{
    library *l = self;
    if (atomic_load_explicit(&l->loaded, memory_order_acquire)) return WEIR_OK;

    weir_status status = WEIR_OK;
    const size_t asked = workspace_asked(l->row);
    wr_lock_acquire(&l->lock);
    if (!atomic_load_explicit(&l->loaded, memory_order_relaxed)) {
        l->workspace_asked = asked;
        status = load_locked(l);
        if (status == WEIR_OK) atomic_store_explicit(&l->loaded, true, memory_order_release);
    }
    wr_lock_release(&l->lock);
    return status;
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static int call_create(const library *l, void **handle)
{
    const wr_library_row *row = l->row;
    if (row->create_has_argument) return ((int (*)(void **, int))l->create)(handle, row->create_argument);
    return ((int (*)(void **))l->create)(handle);
}

static int set_environment_locked(const wr_library_row *row)
{
    const char *found = getenv(row->environment);
    if (found != NULL && strcmp(found, row->environment_value) == 0) return 0;
    if (found != NULL && wr_meta_strdup(found, &environment.before) != WEIR_OK) return WR_LIBRARY_NO_MEMORY;
    if (setenv(row->environment, row->environment_value, 1) != 0) return WR_LIBRARY_NO_MEMORY;
    environment.changed = row->environment;
    return 0;
}

static void put_environment_back_locked(const wr_library_row *row)
{
    int failed = 0;
    if (environment.changed)
        failed = environment.before ? setenv(row->environment, environment.before, 1) : unsetenv(row->environment);
    if (failed) wr_log(WR_LOG_ERROR, "%s: could not restore environment variable %s", row->name, row->environment);
    wr_meta_free(environment.before);
    environment.before = NULL;
    environment.changed = NULL;
}

static int create_in_environment(const library *l, void **handle)
{
    wr_lock_acquire(&environment.lock);
    int code = environment.users == 0 ? set_environment_locked(l->row) : 0;
    if (code == 0)
        environment.users++;
    else
        put_environment_back_locked(l->row);
    wr_lock_release(&environment.lock);
    if (code != 0) return code;

    code = call_create(l, handle);
    wr_lock_acquire(&environment.lock);
    if (--environment.users == 0) put_environment_back_locked(l->row);
    wr_lock_release(&environment.lock);
    return code;
}

static bool no_device(const library *l)
{
    int count = 0;
    if (l->device_count == NULL) return false;
    return ((int (*)(int *))l->device_count)(&count) != 0 || count <= 0;
}

static bool create_syncs(void *self, const weir_device_caps *caps)
{
    const wr_library_row *row = ((const library *)self)->row;
    const char *asked = row->end_variable != NULL ? getenv(row->end_variable) : NULL;
    if (asked != NULL) return asked[0] == '1'; /* as rocBLAS reads it */
    return row->create_may_end_it == NULL || row->create_may_end_it(caps);
}

/* 0, or why the library is not asked. */
static int check_memory(library *l, const weir_device_caps *caps)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (l->memory_info == NULL || !create_syncs(l, caps)) return 0;
    if (((int (*)(size_t *, size_t *))l->memory_info)(&free_bytes, &total_bytes) != 0) return WR_LIBRARY_NO_ANSWER;
    return free_bytes < l->row->memory_needed ? WR_LIBRARY_LOW_MEMORY : 0;
}

/* A failure of the program's own call, which it has not asked its runtime for yet. */
static bool has_unread_error(const library *l)
{
    return l->peek_error != NULL && ((int (*)(void))l->peek_error)() != 0;
}

/* A failed call of weir's, which tells of that itself: the program's next question about its own calls must not. */
static int settle(const library *l, bool unread, int code)
{
    if (code != 0 && !unread && l->take_error != NULL) (void)((int (*)(void))l->take_error)();
    return code;
}

/* When the runtime refuses to free NULL (it is down or lost, or a capture forbids it), it would also refuse to free the
 * handle's memory, and the library would end the process. */
static int destroy_if_allowed(const library *l, void *handle)
{
    if (l->free_memory != NULL && ((int (*)(void *))l->free_memory)(NULL) != 0) return WR_LIBRARY_KEPT;
    return ((int (*)(void *))l->destroy)(handle);
}

static int destroy(void *self, void *handle)
{
    const library *l = self;
    const bool unread = has_unread_error(l);
    return settle(l, unread, destroy_if_allowed(l, handle));
}

static void note_fresh_value(library *l, void *handle)
{
    int value = UNKNOWN;
    if (l->fresh_value == NULL || ((int (*)(void *, int *))l->fresh_value)(handle, &value) != 0) return;
    atomic_store_explicit(&l->fresh, value, memory_order_relaxed);
}

/* There is a handle only if the library returned success and wrote one. What a failed create wrote is ignored, unless
 * `keeps_failed`: cuSOLVER leaves a stray pointer. */
static int create_if_allowed(library *l, const weir_device_caps *caps, void **handle)
{
    const wr_library_row *row = l->row;
    void *made = NULL;
    if (no_device(l)) return WR_LIBRARY_NO_DEVICE;
    int code = check_memory(l, caps);
    if (code != 0) return code;
    code = row->environment != NULL ? create_in_environment(l, &made) : call_create(l, &made);
    if (made != NULL && (code == 0 || row->keeps_failed)) *handle = made;
    if (code != 0) return code;
    if (made == NULL) return WR_LIBRARY_NO_HANDLE;
    note_fresh_value(l, made);
    return 0;
}

static int create(void *self, int device, const weir_device_caps *caps, void **handle)
{
    library *l = self;
    (void)device; /* the caller has made it current */
    assert(atomic_load(&l->loaded));

    const bool unread = has_unread_error(l);
    return settle(l, unread, create_if_allowed(l, caps, handle));
}

/* ---- state of a handle ------------------------------------------------------------------------------------------- */

static int bind(void *self, void *handle, void *native_stream)
{
    const library *l = self;
    return ((int (*)(void *, void *))l->set_stream)(handle, native_stream);
}

/* The library gets the stream with each call; what weir binds to a stream is the memory inside the handle. */
static int bind_memory(void *self, void *handle, void *native_stream)
{
    (void)self;
    (void)handle;
    (void)native_stream;
    return 0;
}

static int reset_one(const wr_reset *reset, any_function function, int fresh, void *handle)
{
    switch (reset->form) {
    case WR_RESET_INT: return ((int (*)(void *, int))function)(handle, (int)reset->value);
    case WR_RESET_TO_FRESH: return fresh == UNKNOWN ? 0 : ((int (*)(void *, int))function)(handle, fresh);
    case WR_RESET_U64: return ((int (*)(void *, unsigned long long))function)(handle, reset->value);
    case WR_RESET_BOOL: return ((int (*)(void *, bool))function)(handle, reset->value != 0);
    case WR_RESET_POINTER: return ((int (*)(void *, void *))function)(handle, NULL);
    case WR_RESET_END: break;
    }
    return 0;
}

static int reset(void *self, void *handle)
{
    const library *l = self;
    const int fresh = atomic_load_explicit(&l->fresh, memory_order_relaxed);
    for (int i = 0; i < RESETS && l->row->reset[i].form != WR_RESET_END; i++) {
        if (l->reset[i] == NULL) continue;
        int code = reset_one(&l->row->reset[i], l->reset[i], fresh, handle);
        if (code != 0) return code;
    }
    return 0;
}

static size_t workspace_bytes(void *self, const weir_device_caps *caps)
{
    const library *l = self;
    if (l->set_workspace == NULL) return 0;
    return l->workspace_asked ? l->workspace_asked : l->row->workspace_bytes(caps);
}

static int set_workspace(void *self, void *handle, void *workspace, size_t bytes)
{
    const library *l = self;
    assert(l->set_workspace != NULL);
    return ((int (*)(void *, void *, size_t))l->set_workspace)(handle, workspace, bytes);
}

/* ---- memory from weir -------------------------------------------------------------------------------------------- */

/* cudssDeviceMemHandler_t; the library copies it. */
typedef struct cudss_memory {
    void *context;
    int (*alloc)(void *context, void **out, size_t bytes, void *stream);
    int (*free)(void *context, void *pointer, size_t bytes, void *stream);
    char name[64];
} cudss_memory;

/* cuDSS sometimes asks for 0 bytes and expects NULL: it takes any other pointer for memory that it must keep track
 * of. */
static int cudss_alloc(void *context, void **out, size_t bytes, void *stream)
{
    const wr_kind_memory *memory = context;
    if (bytes == 0) {
        *out = NULL;
        return 0;
    }
    return memory->alloc(memory->context, bytes, stream, false, out);
}

static int cudss_free(void *context, void *pointer, size_t bytes, void *stream)
{
    const wr_kind_memory *memory = context;
    (void)bytes;
    return pointer ? memory->free(memory->context, pointer, stream, false) : 0;
}

static void *miopen_alloc(void *context, size_t bytes)
{
    const wr_kind_memory *memory = context;
    void *out = NULL;
    return bytes != 0 && memory->alloc(memory->context, bytes, NULL, true, &out) == 0 ? out : NULL;
}

static void miopen_free(void *context, void *pointer)
{
    const wr_kind_memory *memory = context;
    if (pointer && memory->free(memory->context, pointer, NULL, true) != 0)
        wr_log(WR_LOG_ERROR, "miopen freed %p, which weir did not allocate", pointer);
}

/* The casts drop const from the context, which the callbacks only read. */
static int set_memory(void *self, void *handle, const wr_kind_memory *memory)
{
    const library *l = self;
    if (l->set_memory == NULL) return 0;
    if (l->row->memory_form == WR_MEMORY_CUDSS) {
        cudss_memory form = { (void *)memory, cudss_alloc, cudss_free, "weir" };
        return ((int (*)(void *, const void *))l->set_memory)(handle, &form);
    }
    typedef int (*set_allocator)(void *, void *(*)(void *, size_t), void (*)(void *, void *), void *);
    return ((set_allocator)l->set_memory)(handle, miopen_alloc, miopen_free, (void *)memory);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static bool is_out_of_memory(void *self, int code)
{
    const library *l = self;
    if (code == WR_LIBRARY_LOW_MEMORY) return true;
    for (int i = 0; i < OUT_OF_MEMORY_CODES; i++)
        if (code != 0 && code == l->row->out_of_memory[i]) return true;
    return false;
}

static const char *own_text(int code)
{
    switch (code) {
    case WR_LIBRARY_NO_HANDLE: return "-1 success without a handle; is there a device?";
    case WR_LIBRARY_NO_DEVICE: return "-2 no device; the library would end the process";
    case WR_LIBRARY_NO_MEMORY: return "-3 no host memory for the environment";
    case WR_LIBRARY_LOW_MEMORY: return "-4 not enough device memory; the library would end the process";
    case WR_LIBRARY_NO_ANSWER:
        return "-6 the runtime does not tell how much memory is free, and the library would end the process; is the "
               "device lost?";
    case WR_LIBRARY_KEPT:
        return "-5 not destroyed: the runtime frees nothing now, and the library would end the "
               "process";
    default: return NULL;
    }
}

static const char *table_text(const char *const *codes, int code)
{
    for (; codes != NULL && *codes != NULL; codes++)
        if (strtol(*codes, NULL, 10) == code) return *codes;
    return NULL;
}

/* Starts with the number, which is what people search for. */
static const char *error_text(void *self, int code)
{
    static WR_THREAD_LOCAL char text[80];
    const library *l = self;
    const char *words = own_text(code);
    if (words != NULL) return words;
    if (l->error_text != NULL) {
        words = ((const char *(*)(int))l->error_text)(code);
    } else {
        words = table_text(l->row->codes, code);
        if (words != NULL) return words;
    }
    snprintf(text, sizeof text, "%d %s", code, words != NULL ? words : "unknown code");
    return text;
}

static void version_text(const library *l, char *text, size_t size)
{
    int n[3] = { 0 };
    size_t z[3] = { 0 };
    switch (l->row->version_form) {
    case WR_VERSION_NONE: return;
    case WR_VERSION_INT:
        if (((int (*)(int *))l->version)(&n[0]) == 0) snprintf(text, size, "%d", n[0]);
        return;
    case WR_VERSION_PROPERTY:
        for (int i = 0; i < 3; i++)
            if (((int (*)(int, int *))l->version)(i, &n[i]) != 0) return;
        snprintf(text, size, "%d.%d.%d", n[0], n[1], n[2]);
        return;
    case WR_VERSION_SIZE: snprintf(text, size, "%zu", ((size_t (*)(void))l->version)()); return;
    case WR_VERSION_TRIPLE:
        if (((int (*)(size_t *, size_t *, size_t *))l->version)(&z[0], &z[1], &z[2]) == 0)
            snprintf(text, size, "%zu.%zu.%zu", z[0], z[1], z[2]);
        return;
    case WR_VERSION_STRING:
        if (((int (*)(char *, size_t))l->version)(text, size) != 0) text[0] = '\0';
        text[size - 1] = '\0';
        return;
    }
}

static void describe(void *self, weir_handle_kind_info *info)
{
    const library *l = self;
    assert(atomic_load(&l->loaded));
    wr_dl_file(l->file, info->library, sizeof info->library);
    if (l->version != NULL) version_text(l, info->version, sizeof info->version);
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static bind_function bind_of(const wr_library_row *row)
{
    if (row->set_stream != NULL) return bind;
    return row->has_own_memory ? bind_memory : NULL;
}

static void set_up(library *l, const wr_library_row *row)
{
    l->row = row;
    wr_lock_init(&l->lock, WR_RANK_LEAF, row->name);
    l->kind = (wr_kind){
        .name = row->name,
        .flags = row->flags,
        .self = l,
        .load = load,
        .create = create,
        .keeps_failed = row->keeps_failed,
        .create_syncs = create_syncs,
        .destroy = destroy,
        .bind = bind_of(row),
        .reset = row->reset[0].form != WR_RESET_END ? reset : NULL,
        .workspace_bytes = row->set_workspace != NULL ? workspace_bytes : NULL,
        .set_workspace = row->set_workspace != NULL ? set_workspace : NULL,
        .set_memory = row->set_memory != NULL ? set_memory : NULL,
        .is_out_of_memory = is_out_of_memory,
        .error_text = error_text,
        .describe = describe,
    };
}

weir_status wr_library_kind(const wr_library_row *row, wr_kind **kind)
{
    assert(row->kind > 0 && row->kind < WEIR_HANDLE_KIND_MAX);
    library *l = &table[row->kind];
    wr_lock_acquire(&table_lock);
    if (l->row == NULL) set_up(l, row);
    bool same = l->row == row;
    wr_lock_release(&table_lock);
    WR_ENSURE(same, WEIR_ERR_INTERNAL, "two rows for kind %d: %s and %s", (int)row->kind, l->row->name, row->name);
    *kind = &l->kind;
    return WEIR_OK;
}

/* Rows are set up under the table's lock, which was found free first. */
bool wr_library_at_rest(void)
{
    if (!wr_lock_is_free(&table_lock) || !wr_lock_is_free(&environment.lock)) return false;
    for (size_t i = 0; i < WEIR_HANDLE_KIND_MAX; i++)
        if (table[i].row && !wr_lock_is_free(&table[i].lock)) return false;
    return true;
}
