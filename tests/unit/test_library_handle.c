/* What happens to a vendor library's handle between its create and its destroy; on stand-ins. */
#include "unit/library_support.h"

#define MIB ((size_t)1 << 20)

static int forget_environment(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) point_to(row_of(kinds[i]), NULL);
    return 0;
}

static int a_stream, another_stream;

static bool has_stream(weir_handle_kind kind)
{
    return kind != WEIR_CUBLASLT && kind != WEIR_CUTENSOR && kind != WEIR_HIPBLASLT;
}

/* hipBLASLt is told the stream with each call, but its kernels synchronise through memory of the handle. */
static void a_handle_with_memory_of_its_own_is_bound_without_the_library(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_HIPBLASLT), &commands);
    void *handle = created(kind);
    assert_non_null(kind->bind);
    assert_int_equal(kind->bind(kind->self, handle, &a_stream), 0);
    assert_null(commands.handle_stream(handle));
    destroyed(kind, &commands, handle);
}

/* ---- stream ------------------------------------------------------------------------------------------------------ */

static void binds_to_streams_where_handles_have_one(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        assert_int_equal(kind->bind != NULL, has_stream(kinds[i]) || row->has_own_memory);
        if (!has_stream(kinds[i])) continue;
        void *handle = created(kind);
        assert_int_equal(kind->bind(kind->self, handle, &a_stream), 0);
        assert_ptr_equal(commands.handle_stream(handle), &a_stream);
        assert_int_equal(kind->bind(kind->self, handle, NULL), 0);
        assert_null(commands.handle_stream(handle));
        commands.refuse(row->set_stream, 1, 7);
        assert_int_equal(kind->bind(kind->self, handle, &another_stream), 7);
        assert_null(commands.handle_stream(handle));
        destroyed(kind, &commands, handle);
    }
}

/* ---- reset ------------------------------------------------------------------------------------------------------- */

static void reset_puts_every_setting_back(void **state)
{
    (void)state;
    static const struct {
        weir_handle_kind kind;
        const char *symbol;
        unsigned long long value;
    } settings[] = {
        { WEIR_CUBLAS, "cublasSetMathMode", 0 },
        { WEIR_CUBLAS, "cublasSetPointerMode_v2", 0 },
        { WEIR_CUBLAS, "cublasSetAtomicsMode", 0 },
        { WEIR_CUBLAS, "cublasSetSmCountTarget", 0 },
        { WEIR_CUBLAS, "cublasSetEmulationStrategy", 0 },
        { WEIR_CUBLAS, "cublasSetEmulationSpecialValuesSupport", 0xFFFF },
        { WEIR_CUBLAS, "cublasSetFixedPointEmulationMantissaControl", 0 },
        { WEIR_CUBLAS, "cublasSetFixedPointEmulationMaxMantissaBitCount", 0 },
        { WEIR_CUBLAS, "cublasSetFixedPointEmulationMantissaBitOffset", 0 },
        { WEIR_CUBLAS, "cublasSetFixedPointEmulationMantissaBitCountPointer", 0 },
        { WEIR_CUSPARSE, "cusparseSetPointerMode", 0 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetDeterministicMode", 1 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetMathMode", 1 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetEmulationStrategy", 0 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetEmulationSpecialValuesSupport", 0xFFFF },
        { WEIR_CUSOLVER_DN, "cusolverDnSetFixedPointEmulationMantissaControl", 0 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetFixedPointEmulationMaxMantissaBitCount", 0 },
        { WEIR_CUSOLVER_DN, "cusolverDnSetFixedPointEmulationMantissaBitOffset", 0 },
        { WEIR_CURAND, "curandSetGeneratorOrdering", 101 },
        { WEIR_CURAND, "curandSetPseudoRandomGeneratorSeed", 0 },
        { WEIR_CURAND, "curandSetGeneratorOffset", 0 },
        { WEIR_MIOPEN, "miopenEnableProfiling", 0 },
        { WEIR_MIOPEN, "miopenSetTuningPolicy", 1 },
        { WEIR_HIPBLASLT, "hipblasLtSetSmCountTarget", 0 },
        { WEIR_HIPBLASLT, "hipblasLtSetUniformSummationOrder", 0 },
        { WEIR_ROCBLAS, "rocblas_set_pointer_mode", 0 },
        { WEIR_ROCBLAS, "rocblas_set_atomics_mode", 0 },
        { WEIR_ROCBLAS, "rocblas_set_math_mode", 0 },
        { WEIR_ROCBLAS, "rocblas_set_performance_metric", 0 },
        { WEIR_ROCBLAS, "rocblas_set_solution_fitness_query", 0 },
        { WEIR_HIPBLAS, "hipblasSetPointerMode", 0 },
        { WEIR_HIPBLAS, "hipblasSetAtomicsMode", 0 },
        { WEIR_HIPBLAS, "hipblasSetMathMode", 0 },
        { WEIR_ROCSPARSE, "rocsparse_set_pointer_mode", 0 },
        { WEIR_HIPSPARSE, "hipsparseSetPointerMode", 0 },
        { WEIR_HIPSOLVER, "hipsolverSetDeterministicMode", 0 },
        { WEIR_ROCRAND, "rocrand_set_ordering", 101 },
        { WEIR_ROCRAND, "rocrand_set_seed", 0 },
        { WEIR_ROCRAND, "rocrand_set_offset", 0 },
    };
    int listed = 0;
    for (int i = 0; i < KINDS; i++) {
        standin commands;
        wr_kind *kind = loaded(row_of(kinds[i]), &commands);
        if (kind->reset == NULL) continue;
        void *handle = created(kind);
        assert_int_equal(kind->reset(kind->self, handle), 0);
        int calls = 0;
        for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
            unsigned long long value = 12345;
            if (settings[s].kind != kinds[i]) continue;
            if (!commands.handle_value(handle, settings[s].symbol, &value))
                fail_msg("%s not called", settings[s].symbol);
            if (value != settings[s].value) fail_msg("%s: %llu", settings[s].symbol, value);
            assert_int_equal(commands.count(settings[s].symbol), 1);
            calls++;
        }
        assert_true(calls > 0);
        listed += calls;
        destroyed(kind, &commands, handle);
    }
    assert_int_equal(listed, sizeof settings / sizeof settings[0]);
}

/* What new handles have depends on the library's version and on the environment. */
static const struct {
    weir_handle_kind kind;
    const char *setter, *getter;
    int modes[2];
} atomics[] = {
    { WEIR_ROCBLAS, "rocblas_set_atomics_mode", "rocblas_get_atomics_mode", { 0, 1 } },
    { WEIR_HIPBLAS, "hipblasSetAtomicsMode", "hipblasGetAtomicsMode", { 0, 1 } },
    { WEIR_HIPSOLVER, "hipsolverSetDeterministicMode", "hipsolverGetDeterministicMode", { 241, 242 } },
};
enum { ATOMICS = sizeof atomics / sizeof atomics[0] };

static void set_mode(const standin *commands, int i, void *handle, int mode)
{
    int (*set)(void *handle, int mode);
    *(void **)&set = dlsym(commands->library, atomics[i].setter);
    assert_non_null(set);
    assert_int_equal(set(handle, mode), 0);
}

static void reset_gives_atomics_the_mode_of_a_new_handle(void **state)
{
    (void)state;
    for (int i = 0; i < ATOMICS; i++)
        for (int mode = 0; mode < 2; mode++) {
            standin commands;
            unsigned long long value = 12345;
            wr_kind *kind = loaded(row_of(atomics[i].kind), &commands);
            commands.set_fresh(atomics[i].modes[mode]);
            void *handle = created(kind);
            set_mode(&commands, i, handle, atomics[i].modes[1 - mode]);
            assert_int_equal(kind->reset(kind->self, handle), 0);
            assert_true(commands.handle_value(handle, atomics[i].setter, &value));
            assert_int_equal(value, atomics[i].modes[mode]);
            destroyed(kind, &commands, handle);
        }
}

static void atomics_that_no_getter_told_of_are_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < ATOMICS; i++) {
        standin commands;
        wr_kind *kind = loaded(copy_of(atomics[i].kind), &commands);
        commands.refuse(atomics[i].getter, 0, 1);
        void *handle = created(kind);
        set_mode(&commands, i, handle, atomics[i].modes[0]);
        assert_int_equal(kind->reset(kind->self, handle), 0);
        assert_int_equal(commands.count(atomics[i].setter), 1);
        destroyed(kind, &commands, handle);
    }
}

static void kinds_without_state_have_no_reset(void **state)
{
    (void)state;
    static const weir_handle_kind stateless[] = { WEIR_CUBLASLT, WEIR_CUSOLVER_SP, WEIR_CUDNN, WEIR_CUDSS,
                                                  WEIR_CUTENSOR };
    for (size_t i = 0; i < sizeof stateless / sizeof stateless[0]; i++) {
        wr_kind *kind;
        assert_int_equal(wr_library_kind(row_of(stateless[i]), &kind), WEIR_OK);
        assert_null(kind->reset);
    }
}

static void a_failing_reset_stops_with_its_code(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_CURAND), &commands);
    void *handle = created(kind);
    commands.refuse("curandSetPseudoRandomGeneratorSeed", 1, 103);
    assert_int_equal(kind->reset(kind->self, handle), 103);
    assert_int_equal(commands.count("curandSetGeneratorOffset"), 0);
    assert_int_equal(kind->reset(kind->self, handle), 0);
    destroyed(kind, &commands, handle);
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

static size_t wanted(weir_handle_kind number, uint32_t compute_major)
{
    standin commands;
    const weir_device_caps caps = { .compute_major = compute_major };
    wr_kind *kind = loaded(row_of(number), &commands);
    return kind->workspace_bytes != NULL ? kind->workspace_bytes(kind->self, &caps) : 0;
}

static void workspaces_are_as_large_as_the_device_wants(void **state)
{
    (void)state;
    assert_int_equal(wanted(WEIR_CUBLAS, 7), 8519680);
    assert_int_equal(wanted(WEIR_CUBLAS, 8), 8519680);
    assert_int_equal(wanted(WEIR_CUBLAS, 9), 32 * MIB);
    assert_int_equal(wanted(WEIR_CUBLAS, 12), 32 * MIB);
    assert_int_equal(wanted(WEIR_ROCBLAS, 9), 32 * MIB);
    assert_int_equal(wanted(WEIR_ROCBLAS, 11), 32 * MIB);
    const weir_device_caps gfx942 = { .compute_major = 9, .compute_minor = 4 };
    assert_int_equal(row_of(WEIR_ROCBLAS)->workspace_bytes(&gfx942), 128 * MIB);
    assert_int_equal(wanted(WEIR_HIPBLAS, 9), 0); /* ROCm 6: it does not say so */
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i] == WEIR_CUBLAS || kinds[i] == WEIR_ROCBLAS) continue;
        assert_int_equal(wanted(kinds[i], 9), 0);
    }
}

static void a_workspace_is_attached_and_detached(void **state)
{
    (void)state;
    static const weir_handle_kind with[] = { WEIR_CUBLAS, WEIR_ROCBLAS };
    for (int i = 0; i < 2; i++) {
        const wr_library_row *row = row_of(with[i]);
        char memory[256];
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        void *handle = created(kind);
        assert_int_equal(kind->bind(kind->self, handle, &a_stream), 0);
        assert_int_equal(kind->set_workspace(kind->self, handle, memory, sizeof memory), 0);
        assert_ptr_equal(commands.handle_workspace(handle), memory);
        assert_int_equal(commands.handle_workspace_bytes(handle), sizeof memory);
        /* Why a workspace must be attached anew after each bind. */
        assert_int_equal(kind->bind(kind->self, handle, &another_stream), 0);
        assert_ptr_equal(commands.handle_workspace(handle), with[i] == WEIR_CUBLAS ? NULL : memory);
        assert_int_equal(kind->set_workspace(kind->self, handle, NULL, 0), 0);
        assert_null(commands.handle_workspace(handle));
        commands.refuse(row->set_workspace, 1, 7);
        assert_int_equal(kind->set_workspace(kind->self, handle, memory, sizeof memory), 7);
        destroyed(kind, &commands, handle);
    }
}

/* ---- memory from weir -------------------------------------------------------------------------------------------- */

/* Stands for a pool: counts, and remembers what it was asked. */
typedef struct giver {
    int allocs, frees, fail_with;
    size_t bytes;
    void *stream, *freed, *freed_stream;
    bool on_bound, freed_on_bound;
    char memory[16];
} giver;

static int give(void *context, size_t bytes, void *native_stream, bool on_bound, void **out)
{
    giver *g = context;
    if (g->fail_with != 0) return g->fail_with;
    g->allocs++;
    g->bytes = bytes;
    g->stream = native_stream;
    g->on_bound = on_bound;
    *out = g->memory;
    return 0;
}

static int take(void *context, void *pointer, void *native_stream, bool on_bound)
{
    giver *g = context;
    g->frees++;
    g->freed = pointer;
    g->freed_stream = native_stream;
    g->freed_on_bound = on_bound;
    return g->fail_with;
}

/* cuDSS names the stream with every request. */
static void cudss_takes_its_memory_from_weir(void **state)
{
    (void)state;
    standin commands;
    giver g = { .fail_with = 0 };
    const wr_kind_memory memory = { &g, give, take };
    wr_kind *kind = loaded(row_of(WEIR_CUDSS), &commands);
    void *handle = created(kind);
    assert_int_equal(kind->set_memory(kind->self, handle, &memory), 0);
    assert_int_equal(kind->bind(kind->self, handle, &a_stream), 0);
    assert_ptr_equal(commands.use_memory(handle, 5000), g.memory);
    assert_int_equal(g.bytes, 5000);
    assert_ptr_equal(g.stream, &a_stream);
    assert_false(g.on_bound);
    assert_int_equal(kind->bind(kind->self, handle, &another_stream), 0);
    commands.release_memory(handle);
    assert_int_equal(g.frees, 1);
    assert_ptr_equal(g.freed, g.memory);
    assert_ptr_equal(g.freed_stream, &another_stream);
    destroyed(kind, &commands, handle);
    assert_int_equal(g.frees, 1);
}

/* cuDSS asks for no bytes during a solve: a pointer would be memory that it does not know of. */
static void a_request_for_no_bytes_gets_null_without_asking_weir(void **state)
{
    (void)state;
    const weir_handle_kind fed[] = { WEIR_CUDSS, WEIR_MIOPEN };
    for (int i = 0; i < 2; i++) {
        standin commands;
        giver g = { .bytes = 1 };
        const wr_kind_memory memory = { &g, give, take };
        wr_kind *kind = loaded(row_of(fed[i]), &commands);
        void *handle = created(kind);
        assert_int_equal(kind->set_memory(kind->self, handle, &memory), 0);
        assert_null(commands.use_memory(handle, 0));
        assert_int_equal(g.bytes, 1);
        commands.release_memory(handle); /* frees NULL */
        destroyed(kind, &commands, handle);
        assert_int_equal(g.frees, 0);
    }
}

/* MIOpen's callbacks name no stream: they mean the one that the handle is bound to. */
static void miopen_takes_its_memory_from_weir(void **state)
{
    (void)state;
    standin commands;
    giver g = { .fail_with = 0 };
    const wr_kind_memory memory = { &g, give, take };
    wr_kind *kind = loaded(row_of(WEIR_MIOPEN), &commands);
    void *handle = created(kind);
    assert_int_equal(kind->set_memory(kind->self, handle, &memory), 0);
    assert_int_equal(kind->bind(kind->self, handle, &a_stream), 0);
    assert_ptr_equal(commands.use_memory(handle, 70000), g.memory);
    assert_int_equal(g.bytes, 70000);
    assert_null(g.stream);
    assert_true(g.on_bound);
    destroyed(kind, &commands, handle); /* the destroy gives back what the handle still had */
    assert_int_equal(g.frees, 1);
    assert_ptr_equal(g.freed, g.memory);
    assert_true(g.freed_on_bound);
}

static void a_library_is_told_when_there_is_no_memory(void **state)
{
    (void)state;
    static const weir_handle_kind fed[] = { WEIR_CUDSS, WEIR_MIOPEN };
    for (int i = 0; i < 2; i++) {
        standin commands;
        giver g = { .fail_with = 1 };
        const wr_kind_memory memory = { &g, give, take };
        wr_kind *kind = loaded(row_of(fed[i]), &commands);
        void *handle = created(kind);
        assert_int_equal(kind->set_memory(kind->self, handle, &memory), 0);
        assert_null(commands.use_memory(handle, 100));
        g.fail_with = 0;
        assert_non_null(commands.use_memory(handle, 100));
        destroyed(kind, &commands, handle);
        assert_int_equal(g.allocs, 1);
        assert_int_equal(g.frees, 1);
    }
}

static void a_refused_memory_handler_gives_its_code(void **state)
{
    (void)state;
    standin commands;
    giver g = { .fail_with = 0 };
    const wr_kind_memory memory = { &g, give, take };
    wr_kind *kind = loaded(row_of(WEIR_CUDSS), &commands);
    void *handle = created(kind);
    commands.refuse("cudssSetDeviceMemHandler", 1, 4);
    assert_int_equal(kind->set_memory(kind->self, handle, &memory), 4);
    destroyed(kind, &commands, handle);
}

static void a_library_too_old_to_be_fed_feeds_itself(void **state)
{
    (void)state;
    standin commands;
    giver g = { .fail_with = 0 };
    const wr_kind_memory memory = { &g, give, take };
    wr_library_row *row = copy_of(WEIR_CUDSS);
    row->set_memory = "cudssSetDeviceMemHandler_v9";
    wr_kind *kind = loaded(row, &commands);
    void *handle = created(kind);
    assert_int_equal(kind->set_memory(kind->self, handle, &memory), 0);
    assert_null(commands.use_memory(handle, 100));
    destroyed(kind, &commands, handle);
}

static void only_cudss_and_miopen_are_fed(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        wr_kind *kind;
        assert_int_equal(wr_library_kind(row_of(kinds[i]), &kind), WEIR_OK);
        assert_int_equal(kind->set_memory != NULL, kinds[i] == WEIR_CUDSS || kinds[i] == WEIR_MIOPEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(binds_to_streams_where_handles_have_one, forget_environment),
        cmocka_unit_test_teardown(a_handle_with_memory_of_its_own_is_bound_without_the_library, forget_environment),
        cmocka_unit_test_teardown(reset_puts_every_setting_back, forget_environment),
        cmocka_unit_test_teardown(reset_gives_atomics_the_mode_of_a_new_handle, forget_environment),
        cmocka_unit_test_teardown(atomics_that_no_getter_told_of_are_left_alone, forget_environment),
        cmocka_unit_test(kinds_without_state_have_no_reset),
        cmocka_unit_test_teardown(a_failing_reset_stops_with_its_code, forget_environment),
        cmocka_unit_test_teardown(workspaces_are_as_large_as_the_device_wants, forget_environment),
        cmocka_unit_test_teardown(a_workspace_is_attached_and_detached, forget_environment),
        cmocka_unit_test_teardown(cudss_takes_its_memory_from_weir, forget_environment),
        cmocka_unit_test_teardown(a_request_for_no_bytes_gets_null_without_asking_weir, forget_environment),
        cmocka_unit_test_teardown(miopen_takes_its_memory_from_weir, forget_environment),
        cmocka_unit_test_teardown(a_library_is_told_when_there_is_no_memory, forget_environment),
        cmocka_unit_test_teardown(a_refused_memory_handler_gives_its_code, forget_environment),
        cmocka_unit_test_teardown(a_library_too_old_to_be_fed_feeds_itself, forget_environment),
        cmocka_unit_test(only_cudss_and_miopen_are_fed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
