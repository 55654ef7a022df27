/*
 * A computation with each kind of handle inside a captured graph. The handle is got through weir inside the capture;
 * the graph is replayed several times and the result checked. Calls that a library does not allow in a capture are
 * refused by the library, which works again afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "vendor_work.h"

enum { MODES = 3, REPLAYS = 3 };

/* Known properties of the libraries of CUDA 13.0, and of cuDSS 0.7 and cuTENSOR 2.8. */
typedef struct expectation {
    weir_handle_kind kind;
    const char *name;
    bool first; /* the library's very first work in a context may be captured */
    bool later; /* it has done work of this size before */
    bool solve_only;
} expectation;

static const expectation expectations[] = {
    { WEIR_CUBLAS, "cublas gemm", true, true, false },
    { WEIR_CUBLASLT, "cublaslt matmul", true, true, false },
    { WEIR_CUSPARSE, "cusparse SpMV", true, true, false },
    { WEIR_CUSOLVER_DN, "cusolver_dn getrf, getrs", true, true, false },
    { WEIR_CUSOLVER_SP, "cusolver_sp csrlsvqr", false, false, false },
    { WEIR_CUDNN, "cudnn convolution", true, true, false },
    { WEIR_CURAND, "curand uniform", false, true, false },
    { WEIR_CUTENSOR, "cutensor permutation", true, true, false },
    { WEIR_CUDSS, "cudss factorisation, solve", true, true, false },
    { WEIR_CUDSS, "cudss solve", true, true, true },
};
enum { EXPECTATIONS = sizeof expectations / sizeof expectations[0] };

static CUstreamCaptureMode capture_mode;
static CUresult capture_result; /* of ending the capture; of a refused work too */

static bool begin_capture(worker *w)
{
    ENSURE_WEIR(weir_stream_synchronize(w->stream));
    const CUresult code = wr_cu.cuStreamBeginCapture(w->native, capture_mode);
    ENSURE(code == WR_CUDA_SUCCESS, "cuStreamBeginCapture: %d", code);
    return true;
}

static bool replay(worker *w, CUgraph graph, CUdeviceptr output, size_t bytes)
{
    CUgraphExec exec = NULL;
    CUresult code = wr_cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
    ENSURE(code == WR_CUDA_SUCCESS, "cuGraphInstantiate: %d", code);
    for (int i = 0; i < REPLAYS && code == WR_CUDA_SUCCESS; i++) {
        code = wr_cu.cuMemsetD8Async(output, 0xff, bytes, w->native); /* clears the result of an earlier replay */
        if (code == WR_CUDA_SUCCESS) code = wr_cu.cuGraphLaunch(exec, w->native);
    }
    if (code == WR_CUDA_SUCCESS) code = wr_cu.cuStreamSynchronize(w->native);
    wr_cu.cuGraphExecDestroy(exec);
    ENSURE(code == WR_CUDA_SUCCESS, "replay: %d", code);
    return true;
}

static bool end_capture(worker *w, void *output, size_t bytes)
{
    CUgraph graph = NULL;
    capture_result = wr_cu.cuStreamEndCapture(w->native, &graph);
    ENSURE(capture_result == WR_CUDA_SUCCESS, "the work said nothing, but the capture ended with %d", capture_result);
    const bool right = replay(w, graph, (uintptr_t)output, bytes);
    wr_cu.cuGraphDestroy(graph);
    return right;
}

static size_t work_of(weir_handle_kind kind)
{
    size_t i = 0;
    while (works[i].kind != kind) i++;
    return i;
}

/* Ends a capture that refused work left open. */
static bool run_captured(worker *w, const expectation *e, CUstreamCaptureMode mode)
{
    CUstreamCaptureStatus status = WR_CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    cuuint64_t id;
    capture_mode = mode;
    w->begin = begin_capture;
    w->end = end_capture;
    w->captures_solve_only = e->solve_only;
    w->failure[0] = '\0';
    const bool good = works[work_of(e->kind)].run(w);
    driver_ok(wr_cu.cuStreamGetCaptureInfo(w->native, &status, &id, NULL, NULL, NULL));
    if (status != WR_CU_STREAM_CAPTURE_STATUS_NONE) {
        capture_result = wr_cu.cuStreamEndCapture(w->native, &graph);
        if (graph != NULL) driver_ok(wr_cu.cuGraphDestroy(graph));
    }
    w->begin = NULL;
    w->end = NULL;
    static worker blocks; /* free_all() would hide why the work failed */
    memcpy(blocks.blocks, w->blocks, sizeof blocks.blocks);
    blocks.block_count = w->block_count;
    w->block_count = 0;
    if (!free_all(&blocks)) fail_msg("%s", blocks.failure);
    return good;
}

static void tell(const expectation *e, const char *when, const worker *w, bool good)
{
    if (good)
        print_message("| %s | %s | replayed %d times, right |\n", e->name, when, REPLAYS);
    else
        print_message("| %s | %s | refused: %s; the capture's end: %d |\n", e->name, when, w->failure, capture_result);
}

static void works_outside(worker *w, const expectation *e)
{
    if (!run_work(w, work_of(e->kind))) fail_msg("%s, not captured: %s", e->name, w->failure);
}

static bool free_and_run(worker *w, const expectation *e)
{
    if (!free_all(w)) fail_msg("%s", w->failure);
    return run_work(w, work_of(e->kind));
}

/* Some libraries remember a refusal in the handle (cuRAND: 202, preexisting failure). The test prints what helps; a new
 * handle must. */
static void works_after_refusal(worker *w, const expectation *e)
{
    const char *helped = "the same handle works";
    if (!free_and_run(w, e)) {
        print_message("%s: after its refusal: %.120s\n", e->name, w->failure);
        helped = "handing the handle over helped";
        assert_ok(weir_handle_release(e->kind, 0));
        if (!free_and_run(w, e)) {
            helped = "a new handle helped";
            assert_ok(weir_handle_release(e->kind, 0));
            assert_ok(weir_handles_trim(e->kind, 0, NULL));
            if (!free_and_run(w, e)) fail_msg("%s, on a new handle: %s", e->name, w->failure);
        }
    }
    print_message("%s: after its refusal: %s\n", e->name, helped);
}

static void work_is_captured_or_refused(void **state)
{
    static const char *const modes[] = { "GLOBAL", "THREAD_LOCAL", "RELAXED" };
    static worker w;
    const expectation *e = *state;
    weir_stream_guard guard;
    if (on_standin()) {
        print_message("skipped: the stand-ins for the libraries compute nothing\n");
        skip();
    }
    if (!vendor_has[e->kind]) {
        print_message("skipped: %s: its library is not here\n", e->name);
        skip();
    }
    w = (worker){ .seed = 7 };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w.stream));
    assert_ok(weir_stream_native(w.stream, &w.native));
    assert_ok(weir_stream_enter(w.stream, &guard));

    const bool first = run_captured(&w, e, WR_CU_STREAM_CAPTURE_MODE_GLOBAL);
    tell(e, "first work in the context, GLOBAL", &w, first);
    if (!first) works_after_refusal(&w, e);
    bool later[MODES];
    for (int mode = 0; mode < MODES; mode++) {
        w.seed = 8;
        works_outside(&w, e);
        w.seed = 8;
        later[mode] = run_captured(&w, e, mode);
        tell(e, modes[mode], &w, later[mode]);
        if (!later[mode]) works_after_refusal(&w, e);
    }
    assert_ok(weir_stream_leave(&guard));
    assert_ok(weir_stream_destroy(w.stream));
    assert_ok(weir_validate(0));
    assert_int_equal(first, e->first);
    for (int mode = 0; mode < MODES; mode++) assert_int_equal(later[mode], e->later);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[EXPECTATIONS];
    const int gpu = no_gpu();
    if (gpu != 0) return gpu;
    const char *missing = on_standin() ? NULL : vendor_find();
    if (missing != NULL) {
        print_error("%s is not in the library that weir loaded\n", missing);
        return 1;
    }
    for (size_t i = 0; i < EXPECTATIONS; i++)
        tests[i] = (struct CMUnitTest){ expectations[i].name, work_is_captured_or_refused, open_weir, close_weir,
                                        (void *)&expectations[i] };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
