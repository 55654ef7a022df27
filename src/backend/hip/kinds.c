/*
 * AMD's libraries, ROCm 5 to 7. Destroying any of their handles calls hipFree, which waits for all streams of the
 * device and is refused during a capture; then rocBLAS aborts, and with it hipBLAS, hipSOLVER and MIOpen, and hipBLASLt
 * exits. hipBLASLt also exits when its create is refused what it calls, and it fills memory with hipMemset, which no
 * mode of capture allows. rocBLAS and MIOpen create its handles for their own. All of them use one runtime; two
 * versions of it in a process do not know of each other.
 */
#include "backend/library.h"

/* The last is the name of the copy in PyTorch's packages. */
const char *const wr_hip_sonames[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                                       NULL };

#define ONE_RUNTIME .runtimes = wr_hip_sonames, .peek_error = "hipPeekAtLastError", .take_error = "hipGetLastError"
#define ENDS_THE_PROCESS                                                                                               \
    .free_memory = "hipFree", .device_count = "hipGetDeviceCount", .memory_info = "hipMemGetInfo", ONE_RUNTIME,        \
    .flags = WEIR_HANDLE_CREATE_SYNCS | WEIR_HANDLE_DESTROY_SYNCS

#define ROCBLAS_WORKSPACE_VARIABLES                                                                                    \
    { "CUBLAS_WORKSPACE_CONFIG", "HIPBLAS_WORKSPACE_CONFIG", "ROCBLAS_WORKSPACE_CONFIG" } /* as PyTorch */

/* As much as rocBLAS takes for itself at create, and gives back when this is attached: more on gfx940 (MI300) and later
 * devices of that family. */
static size_t rocblas_workspace(const weir_device_caps *caps)
{
    const bool large = caps->compute_major == 9 && caps->compute_minor >= 4;
    return (size_t)(large ? 128 : 32) << 20;
}

/* Whether rocBLAS, and with it hipBLAS and hipSOLVER, creates a handle of hipBLASLt for itself, unless the environment
 * says so or otherwise: handle.hpp of rocBLAS 5 names gfx950, gfx1200, gfx1201 and gfx1250. */
static bool rocblas_creates_hipblaslt(const weir_device_caps *caps)
{
    return caps->compute_major >= 12 || (caps->compute_major == 9 && caps->compute_minor >= 5);
}

/* Its 128 MiB, hipBLASLt's 33, and some. */
#define ROCBLAS_MAY_END_IT                                                                                             \
    .create_may_end_it = rocblas_creates_hipblaslt, .end_variable = "ROCBLAS_USE_HIPBLASLT",                           \
    .memory_needed = (size_t)192 << 20

static const char *const hipblas_codes[] = {
    "1 not initialized",  "2 allocation failed",   "3 invalid value", "4 mapping error",
    "5 execution failed", "6 internal error",      "7 not supported", "8 architecture mismatch",
    "9 null handle",      "10 invalid enumerator", "11 unknown",      NULL,
};

/* cuSPARSE's numbers. */
static const char *const hipsparse_codes[] = {
    "1 not initialized", "2 allocation failed", "3 invalid value",           "4 architecture mismatch",
    "5 mapping error",   "6 execution failed",  "7 internal error",          "8 matrix type not supported",
    "9 zero pivot",      "10 not supported",    "11 insufficient resources", NULL,
};

/* hipBLAS's numbers and two more, not cuSOLVER's. */
static const char *const hipsolver_codes[] = {
    "1 not initialized",
    "2 allocation failed",
    "3 invalid value",
    "4 mapping error",
    "5 execution failed",
    "6 internal error",
    "7 not supported",
    "8 architecture mismatch",
    "9 null handle",
    "10 invalid enumerator",
    "11 unknown",
    "12 zero pivot",
    "13 matrix type not supported",
    NULL,
};

static const char *const rocsparse_codes[] = {
    "1 invalid handle",    "2 not implemented",
    "3 invalid pointer",   "4 invalid size",
    "5 memory error",      "6 internal error",
    "7 invalid value",     "8 architecture mismatch",
    "9 zero pivot",        "10 not initialized",
    "11 type mismatch",    "12 requires sorted storage",
    "13 exception thrown", NULL,
};

static const char *const rocrand_codes[] = {
    "100 version mismatch",
    "101 not created",
    "102 allocation failed",
    "103 type error",
    "104 out of range",
    "105 length not a multiple",
    "106 double precision required",
    "107 launch failure",
    "108 internal error",
    NULL,
};

const wr_library_row wr_hip_kinds[] = {
    {
        .kind = WEIR_MIOPEN,
        .name = "miopen",
        .sonames = { "libMIOpen.so.1" },
        .create = "miopenCreate",
        .destroy = "miopenDestroy",
        .set_stream = "miopenSetStream",
        .version = "miopenGetVersion",
        .version_form = WR_VERSION_TRIPLE,
        .error_text = "miopenGetErrorString",
        .set_memory = "miopenSetAllocator",
        .memory_form = WR_MEMORY_MIOPEN,
        .reset = { { WR_RESET_BOOL, "miopenEnableProfiling", 0 },
                   { WR_RESET_INT, "miopenSetTuningPolicy", 1 } }, /* none */
        .out_of_memory = { 4 },
        ENDS_THE_PROCESS,
        .memory_needed = (size_t)256 << 20, /* rocBLAS's 128 MiB, its hipBLASLt's 33, an own one's 33, and some */
    },
    {
        .kind = WEIR_ROCBLAS,
        .name = "rocblas",
        .sonames = { "librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0" },
        .create = "rocblas_create_handle",
        .destroy = "rocblas_destroy_handle",
        .set_stream = "rocblas_set_stream",
        .version = "rocblas_get_version_string",
        .version_form = WR_VERSION_STRING,
        .error_text = "rocblas_status_to_string",
        .set_workspace = "rocblas_set_workspace",
        .workspace_bytes = rocblas_workspace,
        .workspace_variables = ROCBLAS_WORKSPACE_VARIABLES,
        .reset = { { WR_RESET_INT, "rocblas_set_pointer_mode", 0 },
                   { WR_RESET_TO_FRESH, "rocblas_set_atomics_mode", 0 },
                   { WR_RESET_INT, "rocblas_set_math_mode", 0 },
                   { WR_RESET_INT, "rocblas_set_performance_metric", 0 },
                   { WR_RESET_POINTER, "rocblas_set_solution_fitness_query", 0 } },
        /* Allowed in new handles before 5.0 (ROCm 7.0), and not from then on, unless the environment says otherwise.
         * hipBLAS and hipSOLVER do as rocBLAS. */
        .fresh_value = "rocblas_get_atomics_mode",
        .out_of_memory = { 5 },
        ENDS_THE_PROCESS,
        ROCBLAS_MAY_END_IT,
    },
    {
        .kind = WEIR_HIPBLAS,
        .name = "hipblas",
        .sonames = { "libhipblas.so.3", "libhipblas.so.2", "libhipblas.so.1", "libhipblas.so.0" },
        .create = "hipblasCreate",
        .destroy = "hipblasDestroy",
        .set_stream = "hipblasSetStream",
        .error_text = "hipblasStatusToString",
        .codes = hipblas_codes,
        .set_workspace = "hipblasSetWorkspace", /* from ROCm 7 on */
        .workspace_bytes = rocblas_workspace,   /* its handle is a rocblas_handle */
        .workspace_variables = ROCBLAS_WORKSPACE_VARIABLES,
        .reset = { { WR_RESET_INT, "hipblasSetPointerMode", 0 },
                   { WR_RESET_TO_FRESH, "hipblasSetAtomicsMode", 0 },
                   { WR_RESET_INT, "hipblasSetMathMode", 0 } },
        .fresh_value = "hipblasGetAtomicsMode",
        .out_of_memory = { 2 },
        ENDS_THE_PROCESS,
        ROCBLAS_MAY_END_IT,
    },
    {
        .kind = WEIR_HIPBLASLT,
        .name = "hipblaslt",
        .sonames = { "libhipblaslt.so.1", "libhipblaslt.so.0" },
        .create = "hipblasLtCreate",
        .destroy = "hipblasLtDestroy",
        .codes = hipblas_codes,
        .reset = { { WR_RESET_INT, "hipblasLtSetSmCountTarget", 0 },
                   { WR_RESET_INT, "hipblasLtSetUniformSummationOrder", 0 } },
        .out_of_memory = { 2 },
        ENDS_THE_PROCESS,
        .has_own_memory = true,            /* used by its kernels to synchronise */
        .memory_needed = (size_t)64 << 20, /* up to 33 MiB, and some for its kernels */
    },
    {
        .kind = WEIR_ROCSPARSE,
        .name = "rocsparse",
        .sonames = { "librocsparse.so.1", "librocsparse.so.0" },
        .create = "rocsparse_create_handle",
        .destroy = "rocsparse_destroy_handle",
        .set_stream = "rocsparse_set_stream",
        .error_text = "rocsparse_get_status_name", /* not in 5.3 */
        .codes = rocsparse_codes,
        .reset = { { WR_RESET_INT, "rocsparse_set_pointer_mode", 0 } },
        .out_of_memory = { 5 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
        ONE_RUNTIME,
    },
    {
        .kind = WEIR_HIPSPARSE,
        .name = "hipsparse",
        .sonames = { "libhipsparse.so.4", "libhipsparse.so.1", "libhipsparse.so.0" },
        .create = "hipsparseCreate",
        .destroy = "hipsparseDestroy",
        .set_stream = "hipsparseSetStream",
        .error_text = "hipsparseGetErrorString",
        .codes = hipsparse_codes,
        .reset = { { WR_RESET_INT, "hipsparseSetPointerMode", 0 } },
        .out_of_memory = { 2 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
        ONE_RUNTIME,
    },
    {
        .kind = WEIR_HIPSOLVER,
        .name = "hipsolver",
        .sonames = { "libhipsolver.so.1", "libhipsolver.so.0" },
        .create = "hipsolverCreate",
        .destroy = "hipsolverDestroy",
        .set_stream = "hipsolverSetStream",
        .codes = hipsolver_codes,
        .reset = { { WR_RESET_TO_FRESH, "hipsolverSetDeterministicMode", 0 } },
        .fresh_value = "hipsolverGetDeterministicMode",
        .out_of_memory = { 2 },
        ENDS_THE_PROCESS,
        ROCBLAS_MAY_END_IT,
    },
    {
        .kind = WEIR_ROCRAND,
        .name = "rocrand",
        .sonames = { "librocrand.so.1" },
        .create = "rocrand_create_generator",
        .destroy = "rocrand_destroy_generator",
        .set_stream = "rocrand_set_stream",
        .version = "rocrand_get_version",
        .version_form = WR_VERSION_INT,
        .codes = rocrand_codes,
        .create_has_argument = true,
        .create_argument = 401,                                   /* XORWOW, which is the default type */
        .reset = { { WR_RESET_INT, "rocrand_set_ordering", 101 }, /* ROCRAND_ORDERING_PSEUDO_DEFAULT */
                   { WR_RESET_U64, "rocrand_set_seed", 0 },
                   { WR_RESET_U64, "rocrand_set_offset", 0 } },
        .out_of_memory = { 102 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
        ONE_RUNTIME,
    },
};

const size_t wr_hip_kind_count = sizeof wr_hip_kinds / sizeof wr_hip_kinds[0];
