/*
 * pluggable: a stand-in for PyTorch's CUDAPluggableAllocator, behind a C interface. It calls weir's hooks with
 * PyTorch's types, and catches the exceptions that PyTorch's bindings catch. Hooks that can fail return "" for success,
 * else the kind of exception and its text, valid until the calling thread's next call.
 */
#ifndef WEIR_TESTS_ADAPTERS_PLUGGABLE_H
#define WEIR_TESTS_ADAPTERS_PLUGGABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef bool (*pluggable_filter)(void *argument, void *stream);

const char *pluggable_alloc(size_t size, int device, void *stream, void **out);
void *pluggable_alloc_segment(size_t size, int device, void *stream);
void pluggable_free_segment(void *pointer, size_t size, int device, void *stream);
void pluggable_free(void *pointer, size_t size, int device, void *stream);
const char *pluggable_init(int device_count);
const char *pluggable_reset(void);
const char *pluggable_memory_fraction(double fraction, int device);
const char *pluggable_base_alloc(void *pointer, void **base, size_t *size);
const char *pluggable_record_stream(void *pointer, void *stream);
/* The filter is a std::function that holds `argument`; `*copies` counts its living copies. */
const char *pluggable_begin_allocate_to_pool(int device, unsigned long long capture, unsigned long long user,
                                             pluggable_filter filter, void *argument, int *copies);
const char *pluggable_end_allocate_to_pool(int device, unsigned long long capture, unsigned long long user);
void pluggable_release_pool(int device, unsigned long long capture, unsigned long long user);

/* What the Python package calls; defined by weir. */
int weir_torch_mempool_hold(int device, uint64_t capture, uint64_t user, bool use_on_oom, bool no_split,
                            void *allocator);
bool weir_torch_is_source(const void *allocator);
int weir_torch_mempool_release(int device, uint64_t capture, uint64_t user);
int weir_torch_mempool_references(int device, uint64_t capture, uint64_t user, void *ours);
bool weir_torch_mempool_name(int device, void *id);
size_t weir_torch_mempools(int device, void *torchs, void *ours, size_t capacity);
int weir_torch_mempool_live(int device, uint64_t capture, uint64_t user, void **live, size_t capacity, size_t *count);

/* What kind of allocator becomes PyTorch's current one. */
typedef enum pluggable_kind { PLUGGABLE_NONE, PLUGGABLE_PLAIN, PLUGGABLE_DERIVED } pluggable_kind;
void pluggable_become_current(pluggable_kind kind);
/* As weir_torch_answer. */
bool pluggable_answer(int cuda);
/* What PyTorch asks its current allocator. */
const char *pluggable_cache_info(int device, size_t *largest);
const char *pluggable_get_memory_fraction(int device, double *fraction);
bool pluggable_is_enabled(void);
int pluggable_copy(int device, int from_device, bool reachable);

/* Whether PyTorch's functions for any accelerator ask the current allocator. */
bool pluggable_is_registered(void);

/* What PyTorch's profiler was told last; no memory: that it has run out. */
typedef struct pluggable_told {
    int times;
    void *memory;
    int64_t bytes;
    size_t allocated, reserved;
    int device;
} pluggable_told;
pluggable_told pluggable_listen(bool on); /* on this thread; returns what it was told so far, and forgets it */

typedef void (*pluggable_observer)(void *argument, int device, size_t bytes, size_t total, size_t free);
const char *pluggable_attach_observer(pluggable_observer observer, void *argument);

/* With stacks of all calls, or of none. */
const char *pluggable_record_history(bool enabled, size_t events, bool stacks, bool clear);

/* Which allocator's snapshot the current one gives. */
const char *pluggable_snapshot(unsigned long long user, bool traces);

/* Throws where it returns false. */
typedef bool (*pluggable_tracker)(void *argument, int action, int device, uintptr_t address, size_t size,
                                  unsigned long long user);
const char *pluggable_attach_tracker(pluggable_tracker tracker, void *argument);

/* What PyTorch takes for the calling thread's device and stream. */
void pluggable_set_current(int device, void *stream);
/* What PyTorch will do when the driver is to know the current device. */
void pluggable_put_off(void (*what)(int device), int device);
/* What PyTorch asks its current allocator for. The first leaves the caller what a tensor would own. */
const char *pluggable_allocate(size_t size, int device, void **out);
const char *pluggable_raw_alloc(size_t size, void **out);
const char *pluggable_raw_alloc_with_stream(size_t size, void *stream, void **out);
const char *pluggable_delete(void *pointer);
void pluggable_drop(void *pointer); /* as a tensor does that ends */

/* A checkpoint of a pool. Nobody owns what a restore brings back. */
typedef struct pluggable_state pluggable_state;
typedef struct pluggable_change {
    void *freed[8], *restored[8];
    size_t freed_count, restored_count;
} pluggable_change;
const char *pluggable_get_checkpoint(int device, unsigned long long capture, unsigned long long user,
                                     pluggable_state **out);
const char *pluggable_set_checkpoint(int device, const pluggable_state *checkpoint, pluggable_change *change);
void pluggable_end_checkpoint(pluggable_state *checkpoint);

/* Memory for other processes: PyTorch sends handle and offset, and owns what it opens. */
#define PLUGGABLE_HANDLE 128
typedef struct pluggable_shared pluggable_shared;
const char *pluggable_share(void *pointer, char handle[PLUGGABLE_HANDLE], ptrdiff_t *offset);
const char *pluggable_open_shared(const char *handle, ptrdiff_t offset, void **pointer, pluggable_shared **out);
void pluggable_end_shared(pluggable_shared *shared);
/* What PyTorch will do, once, when it is asked to free what other processes have let go of. */
void pluggable_set_collect(void (*what)(void *argument), void *argument);
void pluggable_throw(void *unused); /* an exception */

/* A CUDAPluggableAllocator, or one of a class derived from it, with such functions. It throws std::bad_alloc for this
 * pointer. */
#define PLUGGABLE_BAD_ALLOC ((void *)1)
typedef void *(*pluggable_allocate_function)(size_t size, int device, void *stream);
typedef void (*pluggable_free_function)(void *pointer);
void *pluggable_make_allocator(bool derived, pluggable_allocate_function allocate, pluggable_free_function free);
void pluggable_end_allocator(void *allocator);

/* How many of PyTorch's exceptions have not been destroyed. */
int pluggable_errors_alive(void);

#ifdef __cplusplus
}
#endif
#endif
