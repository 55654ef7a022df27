#include "standin/driver/driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MAX = 256, LOG = 1024 };

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    atomic_ulong calls;
    atomic_ulong left; /* calls until the scripted failure; 0: none */
    atomic_int code;
} scripts[CALLS_MAX];

static atomic_int logged[LOG]; /* a ring of calls, numbered from 1 */
static atomic_ulong log_count;

static int index_of(const char *name)
{
    for (int i = 0; i < standin_name_count && i < CALLS_MAX; i++)
        if (strcmp(standin_names[i], name) == 0) return i;
    fprintf(stderr, "stand-in: there is no function %s\n", name);
    abort();
}

void standin_fail(const char *name, unsigned long nth, int code)
{
    int call = index_of(name);
    atomic_store(&scripts[call].code, code);
    atomic_store(&scripts[call].left, nth);
}

unsigned long standin_calls(const char *name)
{
    unsigned long sum = 0;
    if (name != NULL) return atomic_load(&scripts[index_of(name)].calls);
    for (int i = 0; i < standin_name_count; i++) sum += atomic_load(&scripts[i].calls);
    return sum;
}

const char *standin_logged(unsigned long back)
{
    unsigned long count = atomic_load(&log_count);
    if (back >= count || back >= LOG) return NULL;
    int call = atomic_load(&logged[(count - 1 - back) % LOG]);
    return call > 0 ? standin_names[call - 1] : NULL;
}

int standin_count(int call)
{
    atomic_fetch_add(&scripts[call].calls, 1);
    atomic_store(&logged[atomic_fetch_add(&log_count, 1) % LOG], call + 1);
    unsigned long left = atomic_load(&scripts[call].left);
    while (left > 0 && !atomic_compare_exchange_weak(&scripts[call].left, &left, left - 1)) {}
    return left == 1 ? atomic_load(&scripts[call].code) : 0;
}

int standin_code(weir_status status)
{
    switch (status) {
    case WEIR_OK: return 0;
    case WEIR_ERR_NOT_READY: return NOT_READY;
    case WEIR_ERR_OUT_OF_MEMORY:
    case WEIR_ERR_OUT_OF_HOST_MEMORY: return OUT_OF_MEMORY;
    case WEIR_ERR_INVALID_ARGUMENT:
    case WEIR_ERR_UNKNOWN_POINTER:
    case WEIR_ERR_BUSY: return INVALID_VALUE;
    case WEIR_ERR_INVALID_STREAM: return standin_invalid_stream;
    case WEIR_ERR_WRONG_DEVICE: return INVALID_HANDLE;
    case WEIR_ERR_NOT_SUPPORTED: return NOT_SUPPORTED;
    case WEIR_ERR_CAPTURE: return CAPTURE_UNSUPPORTED;
    case WEIR_ERR_WRONG_THREAD: return CAPTURE_WRONG_THREAD;
    default: return UNKNOWN;
    }
}

int standin_work_code(weir_status status)
{
    return status == WEIR_ERR_CAPTURE ? CAPTURE_INVALIDATED : standin_code(status);
}

int standin_event_code(weir_status status)
{
    return status == WEIR_ERR_CAPTURE ? CAPTURED_EVENT : standin_code(status);
}
