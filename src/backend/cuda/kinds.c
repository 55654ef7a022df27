/*
 * NVIDIA's libraries, CUDA 11 to 13. Versioned names (cublasCreate_v2) are the only ones that the libraries export.
 * Reset values are those of fresh handles in CUDA 13.0; "found" codes are what their creates returned on a full H200.
 */
#include "backend/library.h"

/* cuBLAS 12 and 13 take 64 MiB for each handle unless this is set at its creation; weir attaches a workspace of its
 * own. cuSOLVER creates cuBLAS handles inside and has no setter for their workspace: it works without one. */
#define NO_OWN_WORKSPACE .environment = "CUBLAS_WORKSPACE_CONFIG", .environment_value = ":0:0"

/* As PyTorch: 32 MiB from Hopper on, before that ":4096:2:16:8" (pairs of KiB and number of pieces). */
static size_t cublas_workspace(const weir_device_caps *caps)
{
    return caps->compute_major >= 9 ? (size_t)32 << 20 : (size_t)(4096 * 2 + 16 * 8) << 10;
}

static const char *const cublas_codes[] = {
    "1 not initialized",   "3 allocation failed", "7 invalid value",  "8 architecture mismatch", "11 mapping error",
    "13 execution failed", "14 internal error",   "15 not supported", "16 license error",        NULL,
};

static const char *const cusparse_codes[] = {
    "1 not initialized", "2 allocation failed", "3 invalid value",           "4 architecture mismatch",
    "5 mapping error",   "6 execution failed",  "7 internal error",          "8 matrix type not supported",
    "9 zero pivot",      "10 not supported",    "11 insufficient resources", NULL,
};

/* The library has no function for these. */
static const char *const cusolver_codes[] = {
    "1 not initialized",
    "2 allocation failed",
    "3 invalid value",
    "4 architecture mismatch",
    "5 mapping error",
    "6 execution failed",
    "7 internal error",
    "8 matrix type not supported",
    "9 not supported",
    "10 zero pivot",
    "11 invalid license",
    "12 IRS parameters not initialized",
    "13 IRS parameters invalid",
    "14 IRS precision invalid",
    "15 IRS refinement invalid",
    "16 IRS maximum of iterations invalid",
    "20 IRS internal error",
    "21 IRS not supported",
    "22 IRS out of range",
    "23 IRS right-hand sides not supported for refinement by GMRES",
    "25 IRS infos not initialized",
    "26 IRS infos not destroyed",
    "30 IRS matrix singular",
    "31 invalid workspace",
    NULL,
};

/* From version 0.3 on; the library has no function for these. */
static const char *const cudss_codes[] = {
    "1 not initialized",
    "2 allocation failed",
    "3 invalid value",
    "4 not supported",
    "5 execution failed",
    "6 internal error",
    "7 iterative refinement failed",
    NULL,
};

/* The library has no function for these. */
static const char *const curand_codes[] = {
    "100 version mismatch",
    "101 not initialized",
    "102 allocation failed",
    "103 type error",
    "104 out of range",
    "105 length not a multiple",
    "106 double precision required",
    "201 launch failure",
    "202 preexisting failure",
    "203 initialization failed",
    "204 architecture mismatch",
    "999 internal error",
    NULL,
};

const wr_library_row wr_cuda_kinds[] = {
    {
        .kind = WEIR_CUBLAS,
        .name = "cublas",
        .sonames = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11" },
        .create = "cublasCreate_v2",
        .destroy = "cublasDestroy_v2",
        .set_stream = "cublasSetStream_v2",
        .version = "cublasGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .error_text = "cublasGetStatusString",
        .codes = cublas_codes,
        .set_workspace = "cublasSetWorkspace_v2",
        .workspace_bytes = cublas_workspace,
        .workspace_variables = { "CUBLAS_WORKSPACE_CONFIG" },
        .reset = { { WR_RESET_INT, "cublasSetMathMode", 0 },
                   { WR_RESET_INT, "cublasSetPointerMode_v2", 0 },
                   { WR_RESET_INT, "cublasSetAtomicsMode", 0 },
                   { WR_RESET_INT, "cublasSetSmCountTarget", 0 },
                   { WR_RESET_INT, "cublasSetEmulationStrategy", 0 },
                   { WR_RESET_INT, "cublasSetEmulationSpecialValuesSupport", 0xFFFF },
                   { WR_RESET_INT, "cublasSetFixedPointEmulationMantissaControl", 0 },
                   { WR_RESET_INT, "cublasSetFixedPointEmulationMaxMantissaBitCount", 0 },
                   { WR_RESET_INT, "cublasSetFixedPointEmulationMantissaBitOffset", 0 },
                   { WR_RESET_POINTER, "cublasSetFixedPointEmulationMantissaBitCountPointer", 0 } },
        .out_of_memory = { 3 },
        NO_OWN_WORKSPACE,
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
    },
    {
        .kind = WEIR_CUBLASLT,
        .name = "cublaslt",
        .sonames = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11" },
        .create = "cublasLtCreate",
        .destroy = "cublasLtDestroy",
        .version = "cublasLtGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .error_text = "cublasLtGetStatusString",
        .codes = cublas_codes,
        .out_of_memory = { 3 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
    },
    {
        .kind = WEIR_CUSPARSE,
        .name = "cusparse",
        .sonames = { "libcusparse.so.12", "libcusparse.so.11" },
        .create = "cusparseCreate",
        .destroy = "cusparseDestroy",
        .set_stream = "cusparseSetStream",
        .version = "cusparseGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .error_text = "cusparseGetErrorString",
        .codes = cusparse_codes,
        .reset = { { WR_RESET_INT, "cusparseSetPointerMode", 0 } },
        .out_of_memory = { 2 },
    },
    {
        .kind = WEIR_CUSOLVER_DN,
        .name = "cusolver_dn",
        .library = "cusolver",
        .sonames = { "libcusolver.so.12", "libcusolver.so.11" },
        .create = "cusolverDnCreate",
        .destroy = "cusolverDnDestroy",
        .set_stream = "cusolverDnSetStream",
        .version = "cusolverGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .codes = cusolver_codes,
        .reset = { { WR_RESET_INT, "cusolverDnSetDeterministicMode", 1 },
                   { WR_RESET_INT, "cusolverDnSetMathMode", 1 },
                   { WR_RESET_INT, "cusolverDnSetEmulationStrategy", 0 },
                   { WR_RESET_INT, "cusolverDnSetEmulationSpecialValuesSupport", 0xFFFF },
                   { WR_RESET_INT, "cusolverDnSetFixedPointEmulationMantissaControl", 0 },
                   { WR_RESET_INT, "cusolverDnSetFixedPointEmulationMaxMantissaBitCount", 0 },
                   { WR_RESET_INT, "cusolverDnSetFixedPointEmulationMantissaBitOffset", 0 } },
        .out_of_memory = { 2, 7 }, /* found: 7 */
        NO_OWN_WORKSPACE,
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
    },
    {
        .kind = WEIR_CUSOLVER_SP,
        .name = "cusolver_sp",
        .library = "cusolver",
        .sonames = { "libcusolver.so.12", "libcusolver.so.11" },
        .create = "cusolverSpCreate",
        .destroy = "cusolverSpDestroy",
        .set_stream = "cusolverSpSetStream",
        .version = "cusolverGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .codes = cusolver_codes,
        .out_of_memory = { 2, 1 }, /* found: 1 */
        NO_OWN_WORKSPACE,
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
    },
    {
        .kind = WEIR_CUDNN,
        .name = "cudnn",
        .sonames = { "libcudnn.so.9", "libcudnn.so.8" },
        .create = "cudnnCreate",
        .destroy = "cudnnDestroy",
        .set_stream = "cudnnSetStream",
        .version = "cudnnGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .error_text = "cudnnGetErrorString",
        .out_of_memory = { 4004, 4000, 2 }, /* found: 4000; 2 is version 8's */
        .flags = WEIR_HANDLE_DESTROY_SYNCS | WEIR_HANDLE_FIRST_ALONE,
    },
    {
        .kind = WEIR_CUDSS,
        .name = "cudss",
        .sonames = { "libcudss.so.1", "libcudss.so.0" },
        .create = "cudssCreate",
        .destroy = "cudssDestroy",
        .set_stream = "cudssSetStream",
        .version = "cudssGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .codes = cudss_codes,
        .set_memory = "cudssSetDeviceMemHandler",
        .memory_form = WR_MEMORY_CUDSS,
        .out_of_memory = { 2 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
        .keeps_failed = true,
    },
    {
        .kind = WEIR_CURAND,
        .name = "curand",
        .sonames = { "libcurand.so.10" },
        .create = "curandCreateGenerator",
        .destroy = "curandDestroyGenerator",
        .set_stream = "curandSetStream",
        .version = "curandGetProperty",
        .version_form = WR_VERSION_PROPERTY,
        .codes = curand_codes,
        .create_has_argument = true,
        .create_argument = 100,                                         /* CURAND_RNG_PSEUDO_DEFAULT */
        .reset = { { WR_RESET_INT, "curandSetGeneratorOrdering", 101 }, /* CURAND_ORDERING_PSEUDO_DEFAULT */
                   { WR_RESET_U64, "curandSetPseudoRandomGeneratorSeed", 0 },
                   { WR_RESET_U64, "curandSetGeneratorOffset", 0 } },
        .out_of_memory = { 102 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS,
    },
    {
        .kind = WEIR_CUTENSOR,
        .name = "cutensor",
        .sonames = { "libcutensor.so.2" }, /* version 1 had no create: its handle was the caller's struct */
        .create = "cutensorCreate",
        .destroy = "cutensorDestroy",
        .version = "cutensorGetVersion",
        .version_form = WR_VERSION_SIZE,
        .error_text = "cutensorGetErrorString",
        .out_of_memory = { 3 },
        .flags = WEIR_HANDLE_DESTROY_SYNCS, /* to be safe: fresh handles were not seen to */
    },
};

const size_t wr_cuda_kind_count = sizeof wr_cuda_kinds / sizeof wr_cuda_kinds[0];
