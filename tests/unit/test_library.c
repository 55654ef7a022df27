/* Finding vendor libraries, creating their handles, and the error texts when that fails; on stand-ins. */
#include "unit/library_support.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#define CONFIG "CUBLAS_WORKSPACE_CONFIG"

static int forget_environment(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) point_to(row_of(kinds[i]), NULL);
    assert_int_equal(unsetenv(CONFIG), 0);
    return 0;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static void every_kind_has_one_complete_row(void **state)
{
    (void)state;
    assert_int_equal(wr_cuda_kind_count + wr_hip_kind_count, KINDS);
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        const size_t most = sizeof row->sonames / sizeof row->sonames[0];
        assert_non_null(row->name);
        assert_non_null(row->sonames[0]);
        assert_null(row->sonames[most - 1]);
        assert_true(row->create != NULL && row->destroy != NULL);
        assert_true(row->error_text != NULL || row->codes != NULL);
        assert_int_equal(row->set_workspace != NULL, row->workspace_bytes != NULL);
        assert_int_equal(row->set_memory != NULL, row->memory_form != WR_MEMORY_NONE);
        assert_int_equal(row->version != NULL, row->version_form != WR_VERSION_NONE);
        assert_int_equal(row->reset[sizeof row->reset / sizeof row->reset[0] - 1].form, WR_RESET_END);
        assert_true(row->out_of_memory[0] != 0);
    }
}

static void loads_the_file_that_the_variable_names_and_tells_its_version(void **state)
{
    (void)state;
    static const char *const versions[KINDS] = {
        "13.1.0", "13.1.0",         "12.6.3", "12.0.4", "12.0.4", "9.19.0", "0.7.1", "10.4.0", "20200",
        "3.4.0",  "4.4.0.stand-in", "",       "",       "",       "",       "",      "201009",
    };
    for (int i = 0; i < KINDS; i++) {
        standin commands;
        char file[512];
        weir_handle_kind_info info = { .size = sizeof info };
        wr_kind *kind = loaded(row_of(kinds[i]), &commands);
        kind->describe(kind->self, &info);
        standin_file(row_of(kinds[i]), file);
        assert_string_equal(kind->name, row_of(kinds[i])->name);
        assert_string_equal(info.library, file);
        assert_string_equal(info.version, versions[i]);
    }
}

static void a_version_that_cannot_be_told_is_empty(void **state)
{
    (void)state;
    static const weir_handle_kind with[] = { WEIR_CUSPARSE, WEIR_MIOPEN, WEIR_ROCBLAS, WEIR_ROCRAND };
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        standin commands;
        weir_handle_kind_info info = { .size = sizeof info };
        wr_kind *kind = loaded(row_of(with[i]), &commands);
        commands.refuse(row_of(with[i])->version, 0, 3);
        kind->describe(kind->self, &info);
        assert_string_equal(info.version, "");
    }
}

static void both_cusolver_kinds_share_a_variable(void **state)
{
    (void)state;
    char dn[64], sp[64];
    variable_of(row_of(WEIR_CUSOLVER_DN), dn);
    variable_of(row_of(WEIR_CUSOLVER_SP), sp);
    assert_string_equal(dn, "WEIR_LIB_CUSOLVER");
    assert_string_equal(sp, dn);
}

static void a_copy_in_the_process_is_preferred(void **state)
{
    (void)state;
    char file[512];
    standin commands;
    wr_kind *kind;
    weir_handle_kind_info info = { .size = sizeof info };
    const wr_library_row *row = copy_of(WEIR_ROCSPARSE);
    standin_file(row, file);
    assert_int_equal(standin_open(&commands, file), 0);
    point_to(row, NULL);
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    assert_int_equal(kind->load(kind->self), WEIR_OK);
    kind->describe(kind->self, &info);
    assert_string_equal(info.library, file);
}

static void an_absent_library_is_named_and_looked_for_again(void **state)
{
    (void)state;
    wr_kind *kind;
    wr_library_row *row = copy_of(WEIR_CUDSS);
    row->sonames[0] = "libweir_absent.so.1";
    row->sonames[1] = NULL;
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kind->load(kind->self), WEIR_ERR_NO_LIBRARY);
        assert_non_null(strstr(weir_error_text(), "cudss"));
        assert_non_null(strstr(weir_error_text(), "libweir_absent.so.1"));
        assert_non_null(strstr(weir_error_text(), "WEIR_LIB_CUDSS"));
    }
    point_to(row, WEIR_TEST_STANDINS "/libcudss.so");
    assert_int_equal(kind->load(kind->self), WEIR_OK);
    assert_int_equal(wr_meta_live(), 0);
}

static void refuses_without(const wr_library_row *row, const char *file, const char *symbol)
{
    wr_kind *kind;
    point_to(row, file);
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    assert_int_equal(kind->load(kind->self), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), symbol));
    assert_non_null(strstr(weir_error_text(), strrchr(file, '/')));
    char variable[64], advice[96];
    variable_of(row, variable);
    snprintf(advice, sizeof advice, "set %s to", variable);
    assert_non_null(strstr(weir_error_text(), advice));
}

static void a_library_without_a_required_symbol_is_refused(void **state)
{
    (void)state;
    refuses_without(copy_of(WEIR_CUSPARSE), WEIR_TEST_STANDINS "/libcudss.so", "cusparseCreate");
    refuses_without(copy_of(WEIR_CUSPARSE), WEIR_TEST_STANDINS "/libcusparse_broken.so", "cusparseDestroy");
    wr_library_row *row = copy_of(WEIR_CUSPARSE);
    row->set_stream = "cusparseSetStream_v9";
    refuses_without(row, WEIR_TEST_STANDINS "/libcusparse.so", "cusparseSetStream_v9");
    refuses_without(copy_of(WEIR_CUSOLVER_SP), WEIR_TEST_STANDINS "/libcusparse.so", "cusolverSpCreate");
}

static void one_runtime_under_two_names_is_one(void **state)
{
    (void)state;
    static const char *const names[] = { "libc.so.6", "libnothing.so.1", "libc.so.6", NULL };
    assert_int_equal(wr_library_one_runtime("cusparse", NULL, names), WEIR_OK);
}

static void a_refused_library_is_unloaded(void **state)
{
    (void)state;
    const char *file = WEIR_TEST_STANDINS "/libcusparse_broken.so";
    refuses_without(copy_of(WEIR_CUSPARSE), file, "cusparseDestroy");
    assert_null(dlopen(file, RTLD_NOW | RTLD_NOLOAD));
}

static void a_refused_library_can_be_replaced(void **state)
{
    (void)state;
    standin commands;
    const wr_library_row *row = copy_of(WEIR_CUSPARSE);
    refuses_without(row, WEIR_TEST_STANDINS "/libcusparse_broken.so", "cusparseDestroy");
    wr_kind *kind = loaded(row, &commands);
    destroyed(kind, &commands, created(kind));
}

static void a_second_row_for_a_kind_is_refused(void **state)
{
    (void)state;
    wr_kind *kind;
    wr_library_row other = *row_of(WEIR_CUDNN);
    assert_int_equal(wr_library_kind(row_of(WEIR_CUDNN), &kind), WEIR_OK);
    wr_kind *first = kind;
    assert_int_equal(wr_library_kind(&other, &kind), WEIR_ERR_INTERNAL);
    assert_ptr_equal(kind, first);
    assert_int_equal(wr_library_kind(row_of(WEIR_CUDNN), &kind), WEIR_OK);
    assert_ptr_equal(kind, first);
}

static void *load_it(void *argument)
{
    wr_kind *kind;
    if (wr_library_kind(argument, &kind) != WEIR_OK || kind->load(kind->self) != WEIR_OK) return NULL;
    void *handle = NULL;
    return kind->create(kind->self, 0, &gfx950, &handle) == 0 && kind->destroy(kind->self, handle) == 0 ? kind : NULL;
}

static void threads_may_load_at_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    wr_library_row *row = copy_of(WEIR_CUSPARSE);
    point_to(row, WEIR_TEST_STANDINS "/libcusparse.so");
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, load_it, row), 0);
    void *first = NULL;
    for (int i = 0; i < 8; i++) {
        void *kind;
        assert_int_equal(pthread_join(threads[i], &kind), 0);
        assert_non_null(kind);
        assert_true(first == NULL || first == kind);
        first = kind;
    }
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static void creates_and_destroys(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        void *one = created(kind), *two = created(kind);
        assert_ptr_not_equal(one, two);
        assert_int_equal(commands.live(), 2);
        assert_int_equal(kind->destroy(kind->self, one), 0);
        destroyed(kind, &commands, two);
        assert_int_equal(commands.count(row->create), 2);
        assert_int_equal(commands.count(row->destroy), 2);
    }
}

static void generators_are_created_with_their_type(void **state)
{
    (void)state;
    static const struct {
        weir_handle_kind kind;
        unsigned long long type;
    } generators[] = { { WEIR_CURAND, 100 }, { WEIR_ROCRAND, 401 } };
    for (int i = 0; i < 2; i++) {
        standin commands;
        unsigned long long type = 0;
        wr_kind *kind = loaded(row_of(generators[i].kind), &commands);
        void *handle = created(kind);
        assert_int_equal(commands.handle_value(handle, row_of(generators[i].kind)->create, &type), 1);
        assert_int_equal(type, generators[i].type);
        destroyed(kind, &commands, handle);
    }
}

/* Whatever a failed create leaves in the variable (nothing, garbage, a half-made handle) reaches nobody, and every
 * status that any of the libraries has comes through with its number in the text. */
static void a_failed_create_gives_its_code_and_no_handle(void **state)
{
    (void)state;
    static const int codes[] = { 1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,  14,
                                 15,   16,   17,   18,   19,   20,   21,   22,   23,   25,   26,   30,   31,  100,
                                 101,  102,  103,  104,  105,  106,  107,  108,  201,  202,  203,  204,  999, 1001,
                                 1002, 1008, 2000, 2012, 3000, 3007, 3014, 4000, 4003, 4004, 4006, 5000, 5004 };
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
            int mark;
            void *handle = &mark;
            char number[16];
            commands.refuse(row->create, 1, codes[c]);
            assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), codes[c]);
            if (kind->keeps_failed)
                assert_int_equal(kind->destroy(kind->self, handle), 0);
            else
                assert_ptr_equal(handle, &mark);
            snprintf(number, sizeof number, "%d ", codes[c]);
            const char *text = kind->error_text(kind->self, codes[c]);
            assert_int_equal(strncmp(text, number, strlen(number)), 0);
            assert_true(strlen(text) > strlen(number));
        }
        assert_int_equal(commands.live(), 0);
        assert_int_equal(commands.misuse(), 0);
        destroyed(kind, &commands, created(kind));
    }
}

static void a_handle_left_by_a_failed_create_is_given_where_the_library_says_so(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        standin commands;
        void *handle = NULL;
        wr_kind *kind = loaded(row, &commands);
        commands.refuse(row->create, 1, 5);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), 5);
        assert_int_equal(handle != NULL, kinds[i] == WEIR_CUDSS);
        assert_int_equal(commands.live(), handle != NULL);
        if (handle != NULL) destroyed(kind, &commands, handle);
    }
}

static void success_without_a_handle_is_a_failure(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        standin commands;
        int mark;
        void *handle = &mark;
        wr_kind *kind = loaded(row_of(kinds[i]), &commands);
        commands.give_no_handle(1);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), WR_LIBRARY_NO_HANDLE);
        assert_ptr_equal(handle, &mark);
        assert_non_null(strstr(kind->error_text(kind->self, WR_LIBRARY_NO_HANDLE), "-1 success without a handle"));
        assert_false(kind->is_out_of_memory(kind->self, WR_LIBRARY_NO_HANDLE));
        commands.give_no_handle(0);
    }
}

/* They end the process where they find no device or no memory, or get no answer; so do their stand-ins, if they are
 * called all the same. */
static const weir_handle_kind exiting[] = { WEIR_HIPBLASLT, WEIR_MIOPEN, WEIR_ROCBLAS, WEIR_HIPBLAS, WEIR_HIPSOLVER };
enum { EXITING = sizeof exiting / sizeof exiting[0] };

static void a_library_that_exits_without_a_device_is_not_asked(void **state)
{
    (void)state;
    for (int i = 0; i < EXITING; i++) {
        const wr_library_row *row = row_of(exiting[i]);
        standin commands;
        void *handle = NULL;
        wr_kind *kind = loaded(row, &commands);
        commands.set_devices(0);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), WR_LIBRARY_NO_DEVICE);
        commands.set_devices(1);
        commands.refuse("hipGetDeviceCount", 1, 100);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), WR_LIBRARY_NO_DEVICE);
        assert_int_equal(commands.count(row->create), 0);
        assert_non_null(strstr(kind->error_text(kind->self, WR_LIBRARY_NO_DEVICE), "no device"));
        destroyed(kind, &commands, created(kind));
    }
}

static void assert_not_asked(const wr_library_row *row, wr_kind *kind, const standin *commands, int code,
                             const char *text)
{
    int mark;
    void *handle = &mark;
    assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), code);
    assert_ptr_equal(handle, &mark);
    assert_int_equal(commands->count(row->create), 0);
    assert_int_equal(kind->is_out_of_memory(kind->self, code), code == WR_LIBRARY_LOW_MEMORY);
    assert_non_null(strstr(kind->error_text(kind->self, code), text));
}

static void a_library_that_exits_without_memory_is_not_asked(void **state)
{
    (void)state;
    for (int i = 0; i < EXITING; i++) {
        const wr_library_row *row = row_of(exiting[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        commands.set_free_memory(row->memory_needed - 1);
        assert_not_asked(row, kind, &commands, WR_LIBRARY_LOW_MEMORY, "device memory");
        commands.set_free_memory(row->memory_needed);
        destroyed(kind, &commands, created(kind));
    }
}

static void rocblas_is_asked_with_less_memory_where_it_does_not_use_hipblaslt(void **state)
{
    (void)state;
    static const weir_handle_kind kinds_of_it[] = { WEIR_ROCBLAS, WEIR_HIPBLAS, WEIR_HIPSOLVER };
    static const weir_device_caps others[] = { { .compute_major = 9, .compute_minor = 4 },
                                               { .compute_major = 9, .compute_minor = 0 },
                                               { .compute_major = 11, .compute_minor = 5 } };
    for (size_t i = 0; i < sizeof kinds_of_it / sizeof kinds_of_it[0]; i++)
        for (size_t other = 0; other < sizeof others / sizeof others[0]; other++) {
            standin commands;
            void *handle = NULL;
            wr_kind *kind = loaded(row_of(kinds_of_it[i]), &commands);
            commands.set_free_memory(row_of(kinds_of_it[i])->memory_needed - 1);
            assert_int_equal(kind->create(kind->self, 0, &others[other], &handle), 0);
            destroyed(kind, &commands, handle);
        }
}

/* What their creates take on the device where that is most (gfx950). */
static void what_must_be_free_is_what_creates_take(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20, rocblas = 128 * mib, hipblaslt = 33 * mib;
    assert_true(row_of(WEIR_HIPBLASLT)->memory_needed > hipblaslt);
    assert_true(row_of(WEIR_ROCBLAS)->memory_needed > rocblas + hipblaslt);
    assert_true(row_of(WEIR_HIPBLAS)->memory_needed > rocblas + hipblaslt);
    assert_true(row_of(WEIR_HIPSOLVER)->memory_needed > rocblas + hipblaslt);
    assert_true(row_of(WEIR_MIOPEN)->memory_needed > rocblas + hipblaslt + hipblaslt);
}

static void a_library_that_exits_is_not_asked_where_the_runtime_refuses(void **state)
{
    (void)state;
    for (int i = 0; i < EXITING; i++) {
        const wr_library_row *row = row_of(exiting[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        commands.refuse(row->memory_info, 1, 719);
        assert_not_asked(row, kind, &commands, WR_LIBRARY_NO_ANSWER, "is the device lost?");
    }
}

/* The stand-ins end the process, as the real libraries do, if they are called all the same. */
static void a_handle_is_kept_when_its_library_could_not_free(void **state)
{
    (void)state;
    for (int i = 0; i < EXITING; i++) {
        const wr_library_row *row = row_of(exiting[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        void *handle = created(kind);
        commands.refuse("hipFree", 0, 900);
        assert_int_equal(kind->destroy(kind->self, handle), WR_LIBRARY_KEPT);
        assert_int_equal(commands.count(row->destroy), 0);
        assert_int_equal(commands.live(), 1);
        assert_non_null(strstr(kind->error_text(kind->self, WR_LIBRARY_KEPT), "not destroyed"));
        commands.refuse("hipFree", 0, 0);
        destroyed(kind, &commands, handle);
    }
}

/* The program's next question, about its own calls, would be answered with it. */
static void a_failure_leaves_the_runtime_no_last_error(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const wr_library_row *row = row_of(kinds[i]);
        standin commands;
        void *none = NULL;
        if (row->take_error == NULL) continue;
        wr_kind *kind = loaded(row, &commands);
        int (*last_error)(void);
        *(void **)&last_error = dlsym(commands.library, "hipGetLastError");
        commands.refuse(row->create, 1, 2);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &none), 2);
        assert_int_equal(last_error(), 0);
        void *handle = created(kind);
        commands.refuse(row->free_memory != NULL ? row->free_memory : row->destroy, 1, 900);
        assert_int_not_equal(kind->destroy(kind->self, handle), 0);
        assert_int_equal(last_error(), 0);
        if (row->free_memory != NULL) destroyed(kind, &commands, handle);
    }
}

static void the_programs_own_last_error_stays(void **state)
{
    (void)state;
    for (int i = 0; i < EXITING; i++) {
        const wr_library_row *row = row_of(exiting[i]);
        standin commands;
        void *none = NULL;
        int count = 0;
        wr_kind *kind = loaded(row, &commands);
        int (*last_error)(void), (*device_count)(int *);
        *(void **)&last_error = dlsym(commands.library, "hipGetLastError");
        *(void **)&device_count = dlsym(commands.library, "hipGetDeviceCount");
        commands.refuse("hipGetDeviceCount", 1, 3);
        assert_int_equal(device_count(&count), 3);
        commands.refuse(row->memory_info, 1, 719);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &none), WR_LIBRARY_NO_ANSWER);
        assert_int_not_equal(last_error(), 0);
    }
}

static void codes_that_mean_no_memory(void **state)
{
    (void)state;
    static const struct {
        weir_handle_kind kind;
        int codes[4];
    } expected[KINDS] = {
        { WEIR_CUBLAS, { 3 } },         { WEIR_CUBLASLT, { 3 } },       { WEIR_CUSPARSE, { 2 } },
        { WEIR_CUSOLVER_DN, { 2, 7 } }, { WEIR_CUSOLVER_SP, { 1, 2 } }, { WEIR_CUDNN, { 2, 4000, 4004 } },
        { WEIR_CUDSS, { 2 } },          { WEIR_CURAND, { 102 } },       { WEIR_CUTENSOR, { 3 } },
        { WEIR_MIOPEN, { 4 } },         { WEIR_ROCBLAS, { 5 } },        { WEIR_HIPBLAS, { 2 } },
        { WEIR_HIPBLASLT, { 2 } },      { WEIR_ROCSPARSE, { 5 } },      { WEIR_HIPSPARSE, { 2 } },
        { WEIR_HIPSOLVER, { 2 } },      { WEIR_ROCRAND, { 102 } },
    };
    for (int i = 0; i < KINDS; i++) {
        wr_kind *kind;
        assert_int_equal(wr_library_kind(row_of(expected[i].kind), &kind), WEIR_OK);
        int next = 0;
        for (int code = -3; code < 5100; code++) {
            bool meant = expected[i].codes[next] != 0 && code == expected[i].codes[next];
            if (meant) next++;
            if (kind->is_out_of_memory(kind->self, code) != meant) fail_msg("%s: code %d", kind->name, code);
        }
        assert_int_equal(expected[i].codes[next], 0);
    }
}

static void a_failed_destroy_gives_its_code(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_CUDNN), &commands);
    void *handle = created(kind);
    commands.refuse("cudnnDestroy", 1, 4000);
    assert_int_equal(kind->destroy(kind->self, handle), 4000);
    assert_int_equal(commands.live(), 0);
}

static void flags_say_what_create_and_destroy_do_to_the_device(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        wr_kind *kind;
        assert_int_equal(wr_library_kind(row_of(kinds[i]), &kind), WEIR_OK);
        assert_int_equal((kind->flags & WEIR_HANDLE_DESTROY_SYNCS) != 0, kinds[i] != WEIR_CUSPARSE);
        assert_int_equal((kind->flags & WEIR_HANDLE_FIRST_ALONE) != 0, kinds[i] == WEIR_CUDNN);
        bool exits = false;
        for (int k = 0; k < EXITING; k++) exits |= kinds[i] == exiting[k];
        assert_int_equal((kind->flags & WEIR_HANDLE_CREATE_SYNCS) != 0, exits);
    }
}

/* ---- the environment around a create ----------------------------------------------------------------------------- */

static const weir_handle_kind in_environment[] = { WEIR_CUBLAS, WEIR_CUSOLVER_DN, WEIR_CUSOLVER_SP };

static void assert_environment(const char *value)
{
    const char *found = getenv(CONFIG);
    if (value == NULL)
        assert_null(found);
    else
        assert_string_equal(found, value);
}

static void creates_see_the_value_and_nobody_after_them(const char *before)
{
    for (int i = 0; i < 3; i++) {
        const wr_library_row *row = row_of(in_environment[i]);
        standin commands;
        wr_kind *kind = loaded(row, &commands);
        assert_int_equal(before != NULL ? setenv(CONFIG, before, 1) : unsetenv(CONFIG), 0);
        void *handle = created(kind);
        assert_string_equal(commands.handle_environment(handle), ":0:0");
        assert_environment(before);
        void *none = NULL;
        commands.refuse(row->create, 1, 14);
        assert_int_equal(kind->create(kind->self, 0, &gfx950, &none), 14);
        assert_environment(before);
        destroyed(kind, &commands, handle);
    }
}

static void an_unset_variable_is_unset_again(void **state)
{
    (void)state;
    creates_see_the_value_and_nobody_after_them(NULL);
}

static void a_value_of_the_users_is_put_back(void **state)
{
    (void)state;
    creates_see_the_value_and_nobody_after_them(":4096:8");
    creates_see_the_value_and_nobody_after_them("");
    creates_see_the_value_and_nobody_after_them(":0:0");
}

static void other_libraries_see_the_users_value(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_CUDNN), &commands);
    assert_int_equal(setenv(CONFIG, ":16:8", 1), 0);
    void *handle = created(kind);
    assert_string_equal(commands.handle_environment(handle), ":16:8");
    destroyed(kind, &commands, handle);
}

static void nothing_is_created_when_the_value_cannot_be_kept(void **state)
{
    (void)state;
    standin commands;
    void *handle = NULL;
    wr_kind *kind = loaded(row_of(WEIR_CUBLAS), &commands);
    assert_int_equal(setenv(CONFIG, ":16:8", 1), 0);
    wr_meta_fail_nth(1);
    assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), WR_LIBRARY_NO_MEMORY);
    assert_int_equal(commands.count("cublasCreate_v2"), 0);
    assert_environment(":16:8");
    assert_int_equal(wr_meta_live(), 0);
    assert_non_null(strstr(kind->error_text(kind->self, WR_LIBRARY_NO_MEMORY), "no host memory"));
}

static void *create_many(void *argument)
{
    const wr_kind *kind = argument;
    for (int i = 0; i < 50; i++) {
        void *handle = NULL;
        if (kind->create(kind->self, 0, &gfx950, &handle) != 0 || kind->destroy(kind->self, handle) != 0) return NULL;
    }
    return argument;
}

static void *create_one(void *argument)
{
    const wr_kind *kind = argument;
    void *handle = NULL;
    return kind->create(kind->self, 0, &gfx950, &handle) == 0 && kind->destroy(kind->self, handle) == 0 ? argument
                                                                                                        : NULL;
}

/* A slow create must not hold up one on another device. */
static void creates_that_need_the_environment_may_overlap(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_CUBLAS), &commands);
    commands.create_delay_ms(50);
    for (int tries = 0; commands.most_creates() < 2 && tries < 50; tries++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, create_one, kind), 0);
        for (int i = 0; i < 2; i++) {
            void *result = NULL;
            assert_int_equal(pthread_join(threads[i], &result), 0);
            assert_non_null(result);
        }
    }
    assert_int_equal(commands.most_creates(), 2);
    assert_environment(NULL);
}

static void *create_and_keep(void *argument)
{
    const wr_kind *kind = argument;
    void *handle = NULL;
    return kind->create(kind->self, 0, &gfx950, &handle) == 0 ? handle : NULL;
}

/* The stand-in looks at the environment last. */
static void a_create_sees_the_value_until_its_end_also_when_another_ends_first(void **state)
{
    (void)state;
    pthread_t thread;
    void *slow = NULL;
    standin commands;
    wr_kind *kind = loaded(row_of(WEIR_CUBLAS), &commands);
    commands.create_delay_ms(200);
    assert_int_equal(pthread_create(&thread, NULL, create_and_keep, kind), 0);
    while (commands.most_creates() == 0) sched_yield();
    commands.create_delay_ms(0);
    assert_int_equal(kind->destroy(kind->self, created(kind)), 0);
    assert_int_equal(pthread_join(thread, &slow), 0);
    assert_non_null(slow);
    assert_string_equal(commands.handle_environment(slow), ":0:0");
    assert_environment(NULL);
    destroyed(kind, &commands, slow);
}

static void creates_on_many_threads_leave_the_environment_alone(void **state)
{
    (void)state;
    pthread_t threads[6];
    standin commands[3];
    wr_kind *used[3];
    for (int i = 0; i < 3; i++) used[i] = loaded(row_of(in_environment[i]), &commands[i]);
    assert_int_equal(setenv(CONFIG, ":16:8", 1), 0);
    for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&threads[i], NULL, create_many, used[i % 3]), 0);
    for (int i = 0; i < 6; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    assert_environment(":16:8");
    assert_int_equal(wr_meta_live(), 0);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void assert_text(weir_handle_kind kind_number, int code, const char *expected)
{
    standin commands;
    wr_kind *kind = loaded(row_of(kind_number), &commands);
    assert_string_equal(kind->error_text(kind->self, code), expected);
}

static void a_code_has_the_librarys_words_or_weirs(void **state)
{
    (void)state;
    assert_text(WEIR_CUSPARSE, 2, "2 failure, says a stand-in");
    assert_text(WEIR_MIOPEN, 7, "7 failure, says a stand-in");
    assert_text(WEIR_CUSOLVER_DN, 1, "1 not initialized");
    assert_text(WEIR_CUSOLVER_SP, 23, "23 IRS right-hand sides not supported for refinement by GMRES");
    assert_text(WEIR_CUDSS, 4, "4 not supported");
    assert_text(WEIR_CURAND, 203, "203 initialization failed");
    assert_text(WEIR_HIPBLASLT, 9, "9 null handle");
    assert_text(WEIR_HIPSOLVER, 12, "12 zero pivot");
    assert_text(WEIR_ROCRAND, 108, "108 internal error");
    assert_text(WEIR_CUSOLVER_DN, 77, "77 unknown code");
    assert_text(WEIR_CUSOLVER_DN, -77, "-77 unknown code");
}

static void an_old_library_works_with_what_it_has(void **state)
{
    (void)state;
    standin commands;
    wr_kind *kind;
    weir_handle_kind_info info = { .size = sizeof info };
    const weir_device_caps caps = { .compute_major = 9 };
    const wr_library_row *row = copy_of(WEIR_CUBLAS);
    point_to(row, WEIR_TEST_STANDINS "/libcublas_old.so");
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    assert_int_equal(kind->load(kind->self), WEIR_OK);
    assert_int_equal(standin_open(&commands, WEIR_TEST_STANDINS "/libcublas_old.so"), 0);
    kind->describe(kind->self, &info);
    assert_string_equal(info.version, "");
    assert_string_equal(kind->error_text(kind->self, 3), "3 allocation failed");
    assert_int_equal(kind->workspace_bytes(kind->self, &caps), 0);
    void *handle = created(kind);
    assert_int_equal(kind->reset(kind->self, handle), 0);
    assert_int_equal(commands.count("cublasSetMathMode"), 1);
    destroyed(kind, &commands, handle);
}

static void errors_of_a_rocsparse_that_cannot_name_them_are_named(void **state)
{
    (void)state;
    wr_kind *kind;
    const wr_library_row *row = copy_of(WEIR_ROCSPARSE);
    point_to(row, WEIR_TEST_STANDINS "/librocsparse_old.so");
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    assert_int_equal(kind->load(kind->self), WEIR_OK);
    assert_string_equal(kind->error_text(kind->self, 5), "5 memory error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_one_complete_row),
        cmocka_unit_test_teardown(a_copy_in_the_process_is_preferred, forget_environment),
        cmocka_unit_test_teardown(loads_the_file_that_the_variable_names_and_tells_its_version, forget_environment),
        cmocka_unit_test_teardown(a_version_that_cannot_be_told_is_empty, forget_environment),
        cmocka_unit_test(both_cusolver_kinds_share_a_variable),
        cmocka_unit_test_teardown(an_absent_library_is_named_and_looked_for_again, forget_environment),
        cmocka_unit_test_teardown(a_library_without_a_required_symbol_is_refused, forget_environment),
        cmocka_unit_test(one_runtime_under_two_names_is_one),
        cmocka_unit_test_teardown(a_refused_library_is_unloaded, forget_environment),
        cmocka_unit_test_teardown(a_refused_library_can_be_replaced, forget_environment),
        cmocka_unit_test(a_second_row_for_a_kind_is_refused),
        cmocka_unit_test_teardown(threads_may_load_at_once, forget_environment),
        cmocka_unit_test_teardown(creates_and_destroys, forget_environment),
        cmocka_unit_test_teardown(generators_are_created_with_their_type, forget_environment),
        cmocka_unit_test_teardown(a_failed_create_gives_its_code_and_no_handle, forget_environment),
        cmocka_unit_test_teardown(a_handle_left_by_a_failed_create_is_given_where_the_library_says_so,
                                  forget_environment),
        cmocka_unit_test_teardown(success_without_a_handle_is_a_failure, forget_environment),
        cmocka_unit_test_teardown(a_library_that_exits_without_a_device_is_not_asked, forget_environment),
        cmocka_unit_test_teardown(a_library_that_exits_is_not_asked_where_the_runtime_refuses, forget_environment),
        cmocka_unit_test_teardown(a_library_that_exits_without_memory_is_not_asked, forget_environment),
        cmocka_unit_test(rocblas_is_asked_with_less_memory_where_it_does_not_use_hipblaslt),
        cmocka_unit_test(what_must_be_free_is_what_creates_take),
        cmocka_unit_test_teardown(a_handle_is_kept_when_its_library_could_not_free, forget_environment),
        cmocka_unit_test(a_failure_leaves_the_runtime_no_last_error),
        cmocka_unit_test(the_programs_own_last_error_stays),
        cmocka_unit_test(codes_that_mean_no_memory),
        cmocka_unit_test_teardown(a_failed_destroy_gives_its_code, forget_environment),
        cmocka_unit_test(flags_say_what_create_and_destroy_do_to_the_device),
        cmocka_unit_test_teardown(an_unset_variable_is_unset_again, forget_environment),
        cmocka_unit_test_teardown(a_value_of_the_users_is_put_back, forget_environment),
        cmocka_unit_test_teardown(other_libraries_see_the_users_value, forget_environment),
        cmocka_unit_test_teardown(nothing_is_created_when_the_value_cannot_be_kept, forget_environment),
        cmocka_unit_test_teardown(creates_that_need_the_environment_may_overlap, forget_environment),
        cmocka_unit_test_teardown(a_create_sees_the_value_until_its_end_also_when_another_ends_first,
                                  forget_environment),
        cmocka_unit_test_teardown(creates_on_many_threads_leave_the_environment_alone, forget_environment),
        cmocka_unit_test_teardown(a_code_has_the_librarys_words_or_weirs, forget_environment),
        cmocka_unit_test_teardown(an_old_library_works_with_what_it_has, forget_environment),
        cmocka_unit_test_teardown(errors_of_a_rocsparse_that_cannot_name_them_are_named, forget_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
