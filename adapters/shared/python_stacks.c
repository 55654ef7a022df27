#include "shared/python_stacks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weir/trace.h>

typedef struct object object; /* PyObject, and what begins with it */

/* Functions of CPython's, all of them documented; the names are those without Py. */
static struct {
    int (*IsInitialized)(void);
    object *(*InterpreterState_Head)(void);
    object *(*InterpreterState_Next)(object *);
    object *(*GILState_GetThisThreadState)(void);
    int (*GILState_Ensure)(void);
    void (*GILState_Release)(int);
    object *(*Eval_GetFrame)(void); /* borrowed */
    object *(*Frame_GetBack)(object *frame);
    object *(*Frame_GetCode)(object *frame);
    int (*Frame_GetLineNumber)(object *frame);
    int (*Frame_GetLasti)(object *frame); /* since 3.11, else NULL */
    object *(*Object_GetAttrString)(object *, const char *);
    const char *(*Unicode_AsUTF8)(object *);
    void (*Err_Fetch)(object **, object **, object **);
    void (*Err_Restore)(object *, object *, object *);
    void (*IncRef)(object *);
    void (*DecRef)(object *);
} py;

/* Lines in the order in which they were met; all but `next` constant once `count` includes them. A line's address is
 * the frame that stands for it. */
typedef struct line {
    object *code;
    int at; /* what Frame_GetLasti says, or else the line's number */
    int number;
    uint32_t next; /* in its bucket, plus one */
    char *file, *function;
} line;

enum { LINES_MOST = 1 << 18, BUCKETS = 1 << 16 };

static struct {
    pthread_mutex_t lock;
    line *lines; /* address space for LINES_MOST; memory as they come */
    atomic_uint count;
    uint32_t buckets[BUCKETS]; /* a line's index plus one; 0: none */
    atomic_bool on;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint32_t *bucket_of(const object *code, int at)
{
    const uint64_t key = ((uint64_t)(uintptr_t)code >> 4 ^ (uint64_t)(uint32_t)at << 32) * UINT64_C(0x9E3779B97F4A7C15);
    return &table.buckets[key >> 48];
}

static const line *find_locked(const object *code, int at)
{
    for (uint32_t i = *bucket_of(code, at); i != 0; i = table.lines[i - 1].next)
        if (table.lines[i - 1].code == code && table.lines[i - 1].at == at) return &table.lines[i - 1];
    return NULL;
}

static const line *find(const object *code, int at)
{
    pthread_mutex_lock(&table.lock);
    const line *found = find_locked(code, at);
    pthread_mutex_unlock(&table.lock);
    return found;
}

/* A copy of a text of the code object; NULL: it has none. */
static char *text_of(object *code, const char *attribute)
{
    object *value = py.Object_GetAttrString(code, attribute);
    const char *text = value ? py.Unicode_AsUTF8(value) : NULL;
    char *copy = text ? strdup(text) : NULL;
    if (value) py.DecRef(value);
    return copy;
}

/* Keeps the reference to the code that `made` has, unless another thread has added the line meanwhile. NULL: no more
 * are kept. */
static const line *add(line *made)
{
    pthread_mutex_lock(&table.lock);
    const line *there = find_locked(made->code, made->at);
    const unsigned count = atomic_load_explicit(&table.count, memory_order_relaxed);
    const bool adds = !there && count < LINES_MOST;
    if (adds) {
        uint32_t *bucket = bucket_of(made->code, made->at);
        made->next = *bucket;
        table.lines[count] = *made;
        *bucket = count + 1;
        atomic_store_explicit(&table.count, count + 1, memory_order_release);
        there = &table.lines[count];
    }
    pthread_mutex_unlock(&table.lock);
    if (!adds) {
        free(made->file);
        free(made->function);
        py.DecRef(made->code);
    }
    return there;
}

/* The exception that is on its way stays as it is, and none is added. */
static const line *meet(object *frame, object *code, int at)
{
    object *type, *value, *traceback;
    py.Err_Fetch(&type, &value, &traceback);
    line made = { .code = code,
                  .at = at,
                  .number = py.Frame_GetLineNumber(frame),
                  .file = text_of(code, "co_filename"),
                  .function = text_of(code, "co_name") };
    py.Err_Restore(type, value, traceback);
    return add(&made);
}

static const line *line_of(object *frame)
{
    object *code = py.Frame_GetCode(frame);
    const int at = py.Frame_GetLasti ? py.Frame_GetLasti(frame) : py.Frame_GetLineNumber(frame);
    const line *found = find(code, at);
    if (!found && atomic_load_explicit(&table.count, memory_order_relaxed) < LINES_MOST) return meet(frame, code, at);
    py.DecRef(code);
    return found;
}

static size_t walk(const void **frames, size_t capacity)
{
    size_t count = 0;
    object *frame = py.Eval_GetFrame();
    if (frame) py.IncRef(frame);
    while (frame) {
        const line *here = count < capacity ? line_of(frame) : NULL;
        object *back = here ? py.Frame_GetBack(frame) : NULL;
        if (here) frames[count++] = here;
        py.DecRef(frame);
        frame = back;
    }
    return count;
}

static size_t take(void *user, const void **frames, size_t capacity)
{
    static _Thread_local bool within; /* walking makes objects, and may so collect garbage, which may free memory */
    (void)user;
    if (within || !atomic_load_explicit(&table.on, memory_order_relaxed) || !py.IsInitialized()) return 0;
    /* Where there are more, the thread may be in another, and before Python 3.12 would wait for itself. */
    if (py.InterpreterState_Next(py.InterpreterState_Head())) return 0;
    if (!py.GILState_GetThisThreadState()) return 0; /* no thread of Python's */
    within = true;
    const int state = py.GILState_Ensure();
    const size_t count = walk(frames, capacity);
    py.GILState_Release(state);
    within = false;
    return count;
}

static bool describe(void *user, const void *frame, weir_frame *out)
{
    (void)user;
    const size_t at = (size_t)((uintptr_t)frame - (uintptr_t)table.lines);
    if (at >= atomic_load_explicit(&table.count, memory_order_acquire) * sizeof(line)) return false;
    const line *l = &table.lines[at / sizeof(line)];
    *out = (weir_frame){ .file = l->file, .function = l->function, .line = l->number > 0 ? (uint64_t)l->number : 0 };
    return true;
}

static bool find_python(void)
{
    static const struct {
        void *function;
        const char *name;
    } wanted[] = {
#define FUNCTION(name) { &py.name, "Py" #name }
        FUNCTION(InterpreterState_Head),
        FUNCTION(InterpreterState_Next),
        FUNCTION(GILState_GetThisThreadState),
        FUNCTION(GILState_Ensure),
        FUNCTION(GILState_Release),
        FUNCTION(Eval_GetFrame),
        FUNCTION(Frame_GetBack),
        FUNCTION(Frame_GetCode),
        FUNCTION(Frame_GetLineNumber),
        FUNCTION(Object_GetAttrString),
        FUNCTION(Unicode_AsUTF8),
        FUNCTION(Err_Fetch),
        FUNCTION(Err_Restore),
        { &py.IsInitialized, "Py_IsInitialized" },
        { &py.IncRef, "Py_IncRef" },
        { &py.DecRef, "Py_DecRef" },
#undef FUNCTION
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(RTLD_DEFAULT, wanted[i].name);
        if (!found) return false;
        memcpy(wanted[i].function, &found, sizeof found);
    }
    void *lasti = dlsym(RTLD_DEFAULT, "PyFrame_GetLasti");
    memcpy(&py.Frame_GetLasti, &lasti, sizeof lasti);
    return true;
}

static weir_status begin_locked(void)
{
    static const weir_stack_source source = { sizeof source, take, describe, NULL };
    if (!find_python()) return WEIR_ERR_NOT_SUPPORTED;
    if (!table.lines) {
        void *space = mmap(NULL, LINES_MOST * sizeof(line), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) return WEIR_ERR_OUT_OF_HOST_MEMORY;
        table.lines = space;
    }
    return weir_history_stacks_from(&source);
}

weir_status weir_python_stacks(void)
{
    pthread_mutex_lock(&table.lock);
    const weir_status status = begin_locked();
    if (status == WEIR_OK) atomic_store(&table.on, true);
    pthread_mutex_unlock(&table.lock);
    return status;
}

void weir_python_stacks_end(void)
{
    atomic_store(&table.on, false);
}
