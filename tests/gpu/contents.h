/*
 * contents: work on a GPU's streams that writes every word of a block, or looks whether it is still there, and work
 * that takes a while. Include after gpu_support.h. On the stand-in for libcuda, whose memory is the host's, host
 * functions do the same.
 */
#ifndef WEIR_TESTS_GPU_CONTENTS_H
#define WEIR_TESTS_GPU_CONTENTS_H

#include "must.h"
#include "random_support.h"

#include <stdatomic.h>
#include <unistd.h>

/* Word i of a block with mark m is m + i: a word of another block, or of another place, differs. */
typedef struct block {
    uint32_t *base;
    size_t words;
    uint32_t mark;
    weir_stream stream;
    bool lent; /* another stream may still look at it */
} block;

/* What the kernels write, on the device. */
typedef struct faults {
    uint64_t place; /* of the last one */
    uint32_t count, found, expected, unused;
} faults;

/* fill(base, words, mark, faults), find(the same), and wait(nanoseconds). */
static const char kernels[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
#define EACH_WORD(name, what)                                                                                          \
    ".visible .entry " name "(.param .u64 base, .param .u64 words, .param .u32 mark, .param .u64 faults)\n"            \
    "{ .reg .pred %p, %q; .reg .u32 %r<8>; .reg .u64 %d<8>;\n"                                                         \
    "  ld.param.u64 %d0, [base]; ld.param.u64 %d1, [words]; ld.param.u32 %r0, [mark]; ld.param.u64 %d6, [faults];\n"   \
    "  cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d6, %d6;\n"                                                    \
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"                    \
    "  cvt.u64.u32 %d3, %r3; mad.wide.u32 %d2, %r1, %r2, %d3; mul.wide.u32 %d4, %r4, %r2;\n"                           \
    "next: setp.ge.u64 %p, %d2, %d1; @%p bra done;\n"                                                                  \
    "  cvt.u32.u64 %r5, %d2; add.u32 %r5, %r5, %r0; shl.b64 %d5, %d2, 2; add.u64 %d5, %d5, %d0;\n" what                \
    "  add.u64 %d2, %d2, %d4; bra next;\n"                                                                             \
    "done: ret; }\n"
    EACH_WORD("fill", "  st.global.u32 [%d5], %r5;\n")
        EACH_WORD("find",
                  "  ld.global.u32 %r6, [%d5]; setp.ne.u32 %q, %r6, %r5;\n"
                  "  @%q st.global.u64 [%d6], %d5; @%q st.global.u32 [%d6+12], %r6; @%q st.global.u32 [%d6+16], %r5;\n"
                  "  @%q red.global.add.u32 [%d6+8], 1;\n")
#undef EACH_WORD
            ".visible .entry wait(.param .u64 ns)\n"
            "{ .reg .pred %p; .reg .u64 %d<4>;\n"
            "  ld.param.u64 %d0, [ns]; mov.u64 %d1, %globaltimer;\n"
            "next: mov.u64 %d2, %globaltimer; sub.u64 %d3, %d2, %d1; setp.lt.u64 %p, %d3, %d0; @%p bra next;\n"
            "  ret; }\n";

static CUresult (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                          void **extra);
enum { MOST_GPUS = 2 };

/* Of each device; all NULL on the stand-in. */
typedef struct kernels_on {
    void *fill, *find, *wait;
    CUdeviceptr faults;
} kernels_on;

static struct {
    int gpus;
    kernels_on on[MOST_GPUS];
    atomic_uint host_faults; /* the stand-in's */
} contents;

static inline const kernels_on *kernels_for(weir_stream stream)
{
    int device = 0;
    must(weir_stream_device(stream, &device) == WEIR_OK && device < contents.gpus);
    return &contents.on[device];
}

/* The driver wants the stream's device to be current. */
static inline void queue_kernel(void *kernel, unsigned grid, unsigned threads, weir_stream stream, void **parameters)
{
    void *native = NULL;
    must(weir_stream_native(stream, &native) == WEIR_OK);
    must(weir_device_set_current((int)(kernels_for(stream) - contents.on)) == WEIR_OK);
    must(launch(kernel, grid, 1, 1, threads, 1, 1, 0, native, parameters, NULL) == WR_CUDA_SUCCESS);
}

/* ---- on the stand-in --------------------------------------------------------------------------------------------- */

enum { HOST_STRIDE = 64 }; /* words: a processor is slower than a GPU */

/* Kept until contents_end(), since a graph runs them as often as it is launched. */
typedef struct touch {
    struct touch *next;
    block block;
    unsigned ns;
} touch;

static _Atomic(touch *) touches;

static inline void host_fill(void *argument)
{
    const block *b = &((touch *)argument)->block;
    for (size_t i = 0; i < b->words; i += HOST_STRIDE) b->base[i] = b->mark + (uint32_t)i;
}

static inline void host_find(void *argument)
{
    const block *b = &((touch *)argument)->block;
    for (size_t i = 0; i < b->words; i += HOST_STRIDE)
        if (b->base[i] != b->mark + (uint32_t)i) atomic_fetch_add(&contents.host_faults, 1);
}

static inline void host_wait(void *argument)
{
    usleep(((touch *)argument)->ns / 1000);
}

static inline void queue_host(void (*what)(void *), const block *b, unsigned ns, weir_stream stream)
{
    touch *t = calloc(1, sizeof *t);
    must(t != NULL);
    *t = (touch){ .next = atomic_load(&touches), .block = *b, .ns = ns };
    while (!atomic_compare_exchange_weak(&touches, &t->next, t)) continue;
    must(weir_stream_callback(stream, what, t) == WEIR_OK);
}

/* ---- on either --------------------------------------------------------------------------------------------------- */

static inline void queue_words(void *kernel, void (*on_host)(void *), const block *b, weir_stream stream)
{
    enum { EACH = 256, GRID_MOST = 512 };
    block of = *b;
    CUdeviceptr faults_at = kernels_for(stream)->faults;
    void *parameters[] = { (void *)&of.base, &of.words, &of.mark, &faults_at };
    const size_t grid = (of.words + EACH - 1) / EACH;
    if (kernel != NULL)
        queue_kernel(kernel, grid < GRID_MOST ? (unsigned)grid : GRID_MOST, EACH, stream, parameters);
    else
        queue_host(on_host, b, 0, stream);
}

static inline void queue_fill(const block *b, weir_stream stream)
{
    queue_words(kernels_for(stream)->fill, host_fill, b, stream);
}

static inline void queue_find(const block *b, weir_stream stream)
{
    queue_words(kernels_for(stream)->find, host_find, b, stream);
}

static inline void queue_wait(unsigned ns, weir_stream stream)
{
    uint64_t wide = ns;
    void *parameters[] = { &wide }, *kernel = kernels_for(stream)->wait;
    const block none = { 0 };
    if (kernel != NULL)
        queue_kernel(kernel, 1, 1, stream, parameters);
    else
        queue_host(host_wait, &none, ns, stream);
}

/* Up to 400 us. */
static inline void queue_delay(weir_stream stream, uint32_t *random)
{
    queue_wait(next_random(random) % 400000, stream);
}

/* One of those that threads share, or as often the thread's own. */
static inline weir_stream random_stream(const weir_stream *shared, uint32_t count, weir_stream own, uint32_t *random)
{
    const uint32_t index = next_random(random) % (2 * count);
    return index < count ? shared[index] : own;
}

/* ---- their beginning and end ------------------------------------------------------------------------------------- */

static inline void load_kernels(int device, kernels_on *out)
{
    CUresult (*load)(void **module, const void *image);
    CUresult (*get)(void **function, void *module, const char *name);
    void *module = NULL;
    assert_ok(weir_device_set_current(device));
    assert_ok(weir_device_synchronize(device));
    if (on_standin()) return;
    *(void **)&load = driver_function("cuModuleLoadData");
    *(void **)&get = driver_function("cuModuleGetFunction");
    *(void **)&launch = driver_function("cuLaunchKernel");
    driver_ok(load(&module, kernels));
    driver_ok(get(&out->fill, module, "fill"));
    driver_ok(get(&out->find, module, "find"));
    driver_ok(get(&out->wait, module, "wait"));
    driver_ok(wr_cu.cuMemAlloc(&out->faults, sizeof(faults)));
    driver_ok(wr_cu.cuMemsetD8Async(out->faults, 0, sizeof(faults), NULL));
    assert_ok(weir_device_synchronize(device));
}

/* After weir_open(), for the first so many devices. */
static inline void contents_begin(int gpus)
{
    contents.gpus = gpus;
    atomic_store(&contents.host_faults, 0);
    for (int i = gpus; i-- > 0;) load_kernels(i, &contents.on[i]);
}

static inline unsigned faults_on(int device)
{
    faults f = { 0 };
    assert_ok(weir_device_set_current(device));
    driver_ok(wr_cu.cuMemcpyAsync((uintptr_t)&f, contents.on[device].faults, sizeof f, NULL));
    assert_ok(weir_device_synchronize(device));
    driver_ok(wr_cu.cuMemFree(contents.on[device].faults));
    if (f.count > 0)
        print_message("%u words, the last at %#llx: %#x instead of %#x\n", f.count, (unsigned long long)f.place,
                      f.found, f.expected);
    return f.count;
}

/* Waits for all work; how many words were not what had been written. Before weir_close(). */
static inline unsigned contents_end(void)
{
    unsigned lost = 0;
    for (int i = 0; i < contents.gpus; i++) assert_ok(weir_device_synchronize(i));
    for (touch *t = atomic_exchange(&touches, NULL), *next; t != NULL; t = next) {
        next = t->next;
        free(t);
    }
    for (int i = 0; i < contents.gpus && contents.on[i].fill != NULL; i++) lost += faults_on(i);
    return lost + atomic_load(&contents.host_faults);
}

#endif
