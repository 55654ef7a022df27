/*
 * A stand-in vendor library for tests; see standin.h. STANDIN_TABLE names the .def file that lists this library's
 * functions, using the macros of the last section.
 */
#include "standin/standin.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RULES = 16, SETTINGS = 24, CALLS = 4096, INVALID_HANDLE = 1, ALL_CALLS = -1 };

/* What a failing create does to the caller's variable. */
typedef enum create_failure {
    UNTOUCHED,
    CLEARED,   /* NULL (cuDNN) */
    GARBAGE,   /* a pointer that is no handle (cuSOLVER) */
    HALF_MADE, /* a handle that must be destroyed (cuDSS 1.0) */
    EXITS,     /* untouched; ends the process without a device, or when the runtime refuses a call (hipBLASLt) */
    MAY_EXIT   /* the same where it makes a handle of hipBLASLt, else UNTOUCHED (rocBLAS) */
} create_failure;

typedef struct setting {
    const char *symbol;
    unsigned long long value;
} setting;

typedef struct handle {
    struct handle *next;
    void *stream, *workspace;
    size_t workspace_bytes;
    setting settings[SETTINGS];
    standin_memory_handler handler;
    void *(*plain_alloc)(void *context, size_t bytes);
    void (*plain_free)(void *context, void *pointer);
    void *memory;
    size_t memory_bytes;
    void *own_memory; /* from the runtime */
    bool environment_set;
    char environment[64];
} handle;

typedef struct rule {
    const char *symbol;
    int nth, code;
} rule;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* all below; not held in the caller's callbacks */
static handle *handles;
static rule rules[RULES];
static const char *calls[CALLS];
static int call_count, creating, most_creates, misuse, delay_ms, devices = 1, fresh_value, last_error;
static bool no_handle;
static size_t free_memory = (size_t)1 << 40;

static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static int ruled_locked(const char *symbol)
{
    for (int i = 0; i < RULES; i++) {
        rule *r = &rules[i];
        if (r->symbol == NULL || strcmp(r->symbol, symbol) != 0) continue;
        if (r->nth == ALL_CALLS) return r->code;
        if (--r->nth > 0) continue;
        r->symbol = NULL;
        return r->code;
    }
    return 0;
}

/* Counts a call; the code that it must fail with, 0 for none. */
static int called_locked(const char *symbol)
{
    if (call_count < CALLS) calls[call_count] = symbol;
    call_count++;
    const int code = ruled_locked(symbol);
    if (code != 0) last_error = code;
    return code;
}

static handle *find_locked(void *h)
{
    for (handle *found = handles; found != NULL; found = found->next)
        if (found == h) return found;
    misuse++;
    return NULL;
}

static void remember_locked(handle *h, const char *symbol, unsigned long long value)
{
    for (int i = 0; i < SETTINGS; i++) {
        setting *s = &h->settings[i];
        if (s->symbol != NULL && strcmp(s->symbol, symbol) != 0) continue;
        *s = (setting){ symbol, value };
        return;
    }
}

static bool recall_locked(const handle *h, const char *symbol, unsigned long long *value)
{
    for (int i = 0; i < SETTINGS && h->settings[i].symbol != NULL; i++) {
        if (strcmp(h->settings[i].symbol, symbol) != 0) continue;
        *value = h->settings[i].value;
        return true;
    }
    return false;
}

/* ---- the library's functions ------------------------------------------------------------------------------------- */

static handle *make_locked(const char *symbol, int argument)
{
    handle *h = calloc(1, sizeof *h);
    if (h == NULL) abort();
    const char *environment = getenv("CUBLAS_WORKSPACE_CONFIG");
    h->environment_set = environment != NULL;
    if (environment != NULL) snprintf(h->environment, sizeof h->environment, "%s", environment);
    remember_locked(h, symbol, (unsigned long long)argument);
    h->next = handles;
    handles = h;
    return h;
}

static void pause_for(int milliseconds)
{
    struct timespec time = { milliseconds / 1000, (long)(milliseconds % 1000) * 1000000 };
    if (milliseconds > 0) nanosleep(&time, NULL);
}

/* Of the stand-in for AMD's runtime; NULL when that is not in the process. */
static void *runtime_function(const char *name)
{
    static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5" };
    void *found = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && found == NULL; i++) {
        void *runtime = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD);
        if (runtime == NULL) continue;
        found = dlsym(runtime, name);
        dlclose(runtime);
    }
    return found;
}

/* As hipBLASLt takes its memory. */
static void *take_or_exit(void)
{
    enum { BYTES = 4096 };
    void *memory = NULL;
    int (*take)(void **memory, size_t bytes), (*clear)(void *memory, int value, size_t bytes);
    *(void **)&take = runtime_function("hipMalloc");
    *(void **)&clear = runtime_function("hipMemset");
    if (take == NULL || clear == NULL) return NULL;
    if (take(&memory, BYTES) != 0 || clear(memory, 0, BYTES) != 0) exit(1);
    return memory;
}

static void free_or_exit(void *memory)
{
    int (*give)(void *memory);
    if (memory == NULL) return;
    *(void **)&give = runtime_function("hipFree");
    if (give(memory) != 0) exit(1);
}

/* As rocBLAS of ROCm 7 decides. */
static bool makes_hipblaslt(void)
{
    const char *asked = getenv("ROCBLAS_USE_HIPBLASLT"), *architecture = getenv("STANDIN_HIP_ARCH");
    if (asked != NULL) return strncmp(asked, "1", 1) == 0;
    return architecture != NULL &&
           (strncmp(architecture, "gfx950", 6) == 0 || strncmp(architecture, "gfx1200", 7) == 0 ||
            strncmp(architecture, "gfx1201", 7) == 0 || strncmp(architecture, "gfx1250", 7) == 0);
}

static int create(const char *symbol, create_failure failure, int argument, void **out)
{
    static char garbage[64];
    if (failure == MAY_EXIT) failure = makes_hipblaslt() ? EXITS : UNTOUCHED;
    lock();
    int code = called_locked(symbol), wait = delay_ms;
    if (failure == EXITS && devices == 0) exit(1);
    if (++creating > most_creates) most_creates = creating;
    unlock();
    pause_for(wait);
    void *own_memory = failure == EXITS && code == 0 ? take_or_exit() : NULL;
    lock();
    creating--;
    if (code == 0 ? !no_handle : failure == HALF_MADE) {
        handle *made = make_locked(symbol, argument);
        made->own_memory = own_memory;
        *out = made;
    }
    if (code != 0 && failure == CLEARED) *out = NULL;
    if (code != 0 && failure == GARBAGE) *out = garbage;
    unlock();
    return code;
}

static void give_memory_back(standin_memory_handler handler, void (*plain_free)(void *, void *), void *memory,
                             size_t bytes, void *stream)
{
    if (plain_free != NULL)
        plain_free(handler.context, memory);
    else if (handler.free != NULL)
        handler.free(handler.context, memory, bytes, stream);
}

static int destroy(const char *symbol, void *which)
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h != NULL) {
        handle **link = &handles;
        while (*link != h) link = &(*link)->next;
        *link = h->next;
    }
    unlock();
    if (h == NULL) return INVALID_HANDLE;
    if (h->memory != NULL) give_memory_back(h->handler, h->plain_free, h->memory, h->memory_bytes, h->stream);
    free_or_exit(h->own_memory);
    free(h);
    return code;
}

static int set_stream(const char *symbol, bool drops_workspace, void *which, void *stream)
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) {
        h->stream = stream;
        if (drops_workspace) h->workspace = NULL, h->workspace_bytes = 0;
    }
    unlock();
    return code;
}

static int get_stream(const char *symbol, void *which, void **stream)
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) *stream = h->stream;
    unlock();
    return code;
}

static int set_workspace(const char *symbol, void *which, void *workspace, size_t bytes)
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) h->workspace = workspace, h->workspace_bytes = bytes;
    unlock();
    return code;
}

static int set_value(const char *symbol, void *which, unsigned long long value)
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) remember_locked(h, symbol, value);
    unlock();
    return code;
}

/* What the setter was called with last, or what new handles have. */
static int get_value(const char *symbol, const char *setter, void *which, int *value)
{
    unsigned long long found = 0;
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) *value = recall_locked(h, setter, &found) ? (int)found : fresh_value;
    unlock();
    return code;
}

static int set_memory(const char *symbol, void *which, standin_memory_handler handler,
                      void *(*plain_alloc)(void *, size_t), void (*plain_free)(void *, void *))
{
    lock();
    int code = called_locked(symbol);
    handle *h = find_locked(which);
    if (h == NULL) code = INVALID_HANDLE;
    if (code == 0) {
        h->handler = handler;
        h->plain_alloc = plain_alloc;
        h->plain_free = plain_free;
    }
    unlock();
    return code;
}

static int plain_call(const char *symbol)
{
    lock();
    int code = called_locked(symbol);
    unlock();
    return code;
}

static int free_or_abort(const char *symbol, void *which)
{
    if (plain_call("hipFree") != 0) abort();
    return destroy(symbol, which);
}

static int tell_memory(const char *symbol, size_t *free_bytes, size_t *total_bytes)
{
    lock();
    int code = called_locked(symbol);
    *free_bytes = free_memory;
    *total_bytes = (size_t)1 << 40;
    unlock();
    return code;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

#define STANDIN_PROTOTYPE(result, name, parameters) result standin_##name parameters;
STANDIN_COMMANDS(STANDIN_PROTOTYPE)

void standin_refuse(const char *symbol, int nth, int code)
{
    lock();
    for (int i = 0; i < RULES; i++)
        if (rules[i].symbol != NULL && code == 0 && strcmp(rules[i].symbol, symbol) == 0) rules[i].symbol = NULL;
    for (int i = 0; i < RULES && code != 0; i++) {
        if (rules[i].symbol != NULL) continue;
        rules[i] = (rule){ symbol, nth > 0 ? nth : ALL_CALLS, code };
        break;
    }
    unlock();
}

void standin_give_no_handle(int on)
{
    lock();
    no_handle = on != 0;
    unlock();
}

void standin_create_delay_ms(int milliseconds)
{
    lock();
    delay_ms = milliseconds;
    unlock();
}

void standin_set_devices(int count)
{
    lock();
    devices = count;
    unlock();
}

void standin_set_free_memory(size_t bytes)
{
    lock();
    free_memory = bytes;
    unlock();
}

void standin_set_fresh(int value)
{
    lock();
    fresh_value = value;
    unlock();
}

void standin_reset(void)
{
    lock();
    free_memory = (size_t)1 << 40;
    memset(rules, 0, sizeof rules);
    call_count = most_creates = misuse = delay_ms = fresh_value = last_error = 0;
    devices = 1;
    no_handle = false;
    unlock();
}

int standin_count(const char *symbol)
{
    int count = 0;
    lock();
    for (int i = 0; i < call_count && i < CALLS; i++) count += strcmp(calls[i], symbol) == 0;
    unlock();
    return count;
}

const char *standin_call(int index)
{
    lock();
    const char *symbol = index >= 0 && index < call_count && index < CALLS ? calls[index] : NULL;
    unlock();
    return symbol;
}

static int read_number(const int *number)
{
    lock();
    int value = *number;
    unlock();
    return value;
}

int standin_live(void)
{
    int count = 0;
    lock();
    for (const handle *h = handles; h != NULL; h = h->next) count++;
    unlock();
    return count;
}

int standin_most_creates(void)
{
    return read_number(&most_creates);
}

int standin_misuse(void)
{
    return read_number(&misuse);
}

void *standin_handle_stream(void *which)
{
    lock();
    handle *h = find_locked(which);
    void *stream = h != NULL ? h->stream : NULL;
    unlock();
    return stream;
}

void *standin_handle_workspace(void *which)
{
    lock();
    handle *h = find_locked(which);
    void *workspace = h != NULL ? h->workspace : NULL;
    unlock();
    return workspace;
}

size_t standin_handle_workspace_bytes(void *which)
{
    lock();
    handle *h = find_locked(which);
    size_t bytes = h != NULL ? h->workspace_bytes : 0;
    unlock();
    return bytes;
}

int standin_handle_value(void *which, const char *symbol, unsigned long long *value)
{
    lock();
    handle *h = find_locked(which);
    const bool found = h != NULL && recall_locked(h, symbol, value);
    unlock();
    return found;
}

const char *standin_handle_environment(void *which)
{
    lock();
    handle *h = find_locked(which);
    unlock();
    return h != NULL && h->environment_set ? h->environment : NULL;
}

/* As with the real libraries, only one thread at a time uses a handle, so its fields are read without the lock here. */
void *standin_use_memory(void *which, size_t bytes)
{
    lock();
    handle *h = find_locked(which);
    unlock();
    if (h == NULL || h->memory != NULL) return NULL;
    void *memory = NULL;
    if (h->plain_alloc != NULL)
        memory = h->plain_alloc(h->handler.context, bytes);
    else if (h->handler.alloc == NULL || h->handler.alloc(h->handler.context, &memory, bytes, h->stream) != 0)
        return NULL;
    h->memory = memory;
    h->memory_bytes = bytes;
    return memory;
}

void standin_release_memory(void *which)
{
    lock();
    handle *h = find_locked(which);
    unlock();
    if (h == NULL) return;
    give_memory_back(h->handler, h->plain_free, h->memory, h->memory_bytes, h->stream);
    h->memory = NULL;
}

/* ---- the words of a .def file ------------------------------------------------------------------------------------ */

/* Statuses are int and handles void * here: the vendors' enums and pointers are passed the same way. */
#define CREATE(name, failure)                                                                                          \
    int name(void **h);                                                                                                \
    int name(void **h)                                                                                                 \
    {                                                                                                                  \
        return create(#name, failure, 0, h);                                                                           \
    }
#define CREATE_TYPED(name, failure)                                                                                    \
    int name(void **h, int type);                                                                                      \
    int name(void **h, int type)                                                                                       \
    {                                                                                                                  \
        return create(#name, failure, type, h);                                                                        \
    }
#define DESTROY(name)                                                                                                  \
    int name(void *h);                                                                                                 \
    int name(void *h)                                                                                                  \
    {                                                                                                                  \
        return destroy(#name, h);                                                                                      \
    }
#define DESTROY_OR_ABORT(name)                                                                                         \
    int name(void *h);                                                                                                 \
    int name(void *h)                                                                                                  \
    {                                                                                                                  \
        return free_or_abort(#name, h);                                                                                \
    }
#define STREAM(name, drops_workspace)                                                                                  \
    int name(void *h, void *stream);                                                                                   \
    int name(void *h, void *stream)                                                                                    \
    {                                                                                                                  \
        return set_stream(#name, drops_workspace, h, stream);                                                          \
    }
#define GET_STREAM(name)                                                                                               \
    int name(void *h, void **stream);                                                                                  \
    int name(void *h, void **stream)                                                                                   \
    {                                                                                                                  \
        return get_stream(#name, h, stream);                                                                           \
    }
#define WORKSPACE(name)                                                                                                \
    int name(void *h, void *workspace, size_t bytes);                                                                  \
    int name(void *h, void *workspace, size_t bytes)                                                                   \
    {                                                                                                                  \
        return set_workspace(#name, h, workspace, bytes);                                                              \
    }
#define SET_(name, type, value)                                                                                        \
    int name(void *h, type x);                                                                                         \
    int name(void *h, type x)                                                                                          \
    {                                                                                                                  \
        return set_value(#name, h, value);                                                                             \
    }
#define SET_INT(name) SET_(name, int, (unsigned long long)x)
#define GET_INT(name, setter)                                                                                          \
    int name(void *h, int *value);                                                                                     \
    int name(void *h, int *value)                                                                                      \
    {                                                                                                                  \
        return get_value(#name, #setter, h, value);                                                                    \
    }
#define SET_U64(name) SET_(name, unsigned long long, x)
#define SET_BOOL(name) SET_(name, bool, x)
#define SET_POINTER(name) SET_(name, void *, (uintptr_t)x)
#define CUDSS_MEMORY(name)                                                                                             \
    int name(void *h, const void *handler);                                                                            \
    int name(void *h, const void *handler)                                                                             \
    {                                                                                                                  \
        return set_memory(#name, h, *(const standin_memory_handler *)handler, NULL, NULL);                             \
    }
#define MIOPEN_MEMORY(name)                                                                                            \
    int name(void *h, void *(*a)(void *, size_t), void (*f)(void *, void *), void *context);                           \
    int name(void *h, void *(*a)(void *, size_t), void (*f)(void *, void *), void *context)                            \
    {                                                                                                                  \
        return set_memory(#name, h, (standin_memory_handler){ .context = context }, a, f);                             \
    }
#define VERSION_INT(name, number)                                                                                      \
    int name(int *version);                                                                                            \
    int name(int *version)                                                                                             \
    {                                                                                                                  \
        int code = plain_call(#name);                                                                                  \
        if (code == 0) *version = number;                                                                              \
        return code;                                                                                                   \
    }
#define VERSION_PROPERTY(name, major, minor, patch)                                                                    \
    int name(int property, int *value);                                                                                \
    int name(int property, int *value)                                                                                 \
    {                                                                                                                  \
        const int values[] = { major, minor, patch };                                                                  \
        int code = plain_call(#name);                                                                                  \
        if (code == 0) *value = values[property];                                                                      \
        return code;                                                                                                   \
    }
#define VERSION_SIZE(name, number)                                                                                     \
    size_t name(void);                                                                                                 \
    size_t name(void)                                                                                                  \
    {                                                                                                                  \
        return number;                                                                                                 \
    }
#define VERSION_TRIPLE(name, major, minor, patch)                                                                      \
    int name(size_t *x, size_t *y, size_t *z);                                                                         \
    int name(size_t *x, size_t *y, size_t *z)                                                                          \
    {                                                                                                                  \
        int code = plain_call(#name);                                                                                  \
        if (code == 0) *x = major, *y = minor, *z = patch;                                                             \
        return code;                                                                                                   \
    }
#define VERSION_STRING(name, version)                                                                                  \
    int name(char *text, size_t bytes);                                                                                \
    int name(char *text, size_t bytes)                                                                                 \
    {                                                                                                                  \
        int code = plain_call(#name);                                                                                  \
        if (code == 0) snprintf(text, bytes, "%s", version);                                                           \
        return code;                                                                                                   \
    }
#define ERROR_TEXT(name)                                                                                               \
    const char *name(int code);                                                                                        \
    const char *name(int code)                                                                                         \
    {                                                                                                                  \
        return code == 0 ? "success, says a stand-in" : "failure, says a stand-in";                                    \
    }
#define DEVICE_COUNT(name)                                                                                             \
    int name(int *count);                                                                                              \
    int name(int *count)                                                                                               \
    {                                                                                                                  \
        int code = plain_call(#name);                                                                                  \
        *count = code == 0 ? read_number(&devices) : 0;                                                                \
        return code;                                                                                                   \
    }
#define MEMORY_INFO(name)                                                                                              \
    int name(size_t *free_bytes, size_t *total_bytes);                                                                 \
    int name(size_t *free_bytes, size_t *total_bytes)                                                                  \
    {                                                                                                                  \
        return tell_memory(#name, free_bytes, total_bytes);                                                            \
    }
#define FREE_MEMORY(name)                                                                                              \
    int name(void *memory);                                                                                            \
    int name(void *memory)                                                                                             \
    {                                                                                                                  \
        (void)memory;                                                                                                  \
        return plain_call(#name);                                                                                      \
    }
#define PEEK_ERROR(name)                                                                                               \
    int name(void);                                                                                                    \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return read_number(&last_error);                                                                               \
    }
#define TAKE_ERROR(name)                                                                                               \
    int name(void);                                                                                                    \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        lock();                                                                                                        \
        const int code = last_error;                                                                                   \
        last_error = 0;                                                                                                \
        unlock();                                                                                                      \
        return code;                                                                                                   \
    }

#include STANDIN_TABLE
