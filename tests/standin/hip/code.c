/* Device code is registered and loaded as if it existed, and launched as work that does nothing, in stream order. */
#include "standin/hip/standin_internal.h"

#include <stdlib.h>
#include <string.h>

/* Stands for every module, function and program; libraries never look inside one. */
static char anything[64];

/* ---- code that libraries bring with them, registered when they are loaded ---------------------------------------- */

void **__hipRegisterFatBinary(const void *code)
{
    (void)code;
    (void)standin_count(STANDIN___hipRegisterFatBinary);
    void **modules = malloc(sizeof *modules);
    if (modules == NULL) abort();
    *modules = anything;
    return modules;
}

void __hipUnregisterFatBinary(void **modules)
{
    (void)standin_count(STANDIN___hipUnregisterFatBinary);
    free(modules);
}

void __hipRegisterFunction(void **modules, const void *host_function, char *name, const char *device_name,
                           unsigned int thread_limit, void *thread, void *block, void *block_size, void *grid_size,
                           int *warp_size)
{
    (void)modules, (void)host_function, (void)name, (void)device_name, (void)thread_limit, (void)thread, (void)block;
    (void)block_size, (void)grid_size, (void)warp_size;
    (void)standin_count(STANDIN___hipRegisterFunction);
}

void __hipRegisterVar(void **modules, void *variable, char *host_name, char *device_name, int external, size_t size,
                      int constant, int global)
{
    (void)modules, (void)variable, (void)host_name, (void)device_name, (void)external, (void)size, (void)constant;
    (void)global;
    (void)standin_count(STANDIN___hipRegisterVar);
}

/* The compiler puts these two around every launch, on one thread. */
static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
} configuration;

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream)
{
    (void)standin_count(STANDIN___hipPushCallConfiguration);
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream)
{
    (void)standin_count(STANDIN___hipPopCallConfiguration);
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return 0;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static void run_nothing(void *unused)
{
    (void)unused;
}

static int launch(enum standin_call call, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(call, stream, &device));
    return standin_last(
        standin_work_code(wr_backend_host.stream_callback(device, standin_stream(stream), run_nothing, NULL)));
}

static int launch_between(enum standin_call call, hipStream_t stream, hipEvent_t start, hipEvent_t stop)
{
    if (start != NULL) TRY(hipEventRecord(start, stream));
    TRY(launch(call, stream));
    return stop != NULL ? hipEventRecord(stop, stream) : 0;
}

hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                           hipStream_t stream)
{
    (void)function, (void)grid, (void)block, (void)arguments, (void)shared;
    return launch(STANDIN_hipLaunchKernel, stream);
}

hipError_t hipExtLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                              hipStream_t stream, hipEvent_t start, hipEvent_t stop, int flags)
{
    (void)function, (void)grid, (void)block, (void)arguments, (void)shared, (void)flags;
    return launch_between(STANDIN_hipExtLaunchKernel, stream, start, stop);
}

hipError_t hipModuleLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                                 hipStream_t stream, void **arguments, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)arguments, (void)extra;
    return launch(STANDIN_hipModuleLaunchKernel, stream);
}

hipError_t hipModuleLaunchCooperativeKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared, hipStream_t stream,
                                            void **arguments)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)arguments;
    return launch(STANDIN_hipModuleLaunchCooperativeKernel, stream);
}

hipError_t hipExtModuleLaunchKernel(void *function, uint32_t work_x, uint32_t work_y, uint32_t work_z, uint32_t block_x,
                                    uint32_t block_y, uint32_t block_z, size_t shared, hipStream_t stream,
                                    void **arguments, void **extra, hipEvent_t start, hipEvent_t stop, uint32_t flags)
{
    (void)function, (void)work_x, (void)work_y, (void)work_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)arguments, (void)extra, (void)flags;
    return launch_between(STANDIN_hipExtModuleLaunchKernel, stream, start, stop);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

hipError_t hipModuleLoad(void **module, const char *file)
{
    (void)file;
    TRY(standin_begin(STANDIN_hipModuleLoad));
    *module = anything;
    return 0;
}

hipError_t hipModuleLoadData(void **module, const void *image)
{
    (void)image;
    TRY(standin_begin(STANDIN_hipModuleLoadData));
    *module = anything;
    return 0;
}

hipError_t hipModuleUnload(void *module)
{
    (void)module;
    return standin_begin(STANDIN_hipModuleUnload);
}

hipError_t hipModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module, (void)name;
    TRY(standin_begin(STANDIN_hipModuleGetFunction));
    *function = anything;
    return 0;
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int block_size,
                                                              size_t shared)
{
    (void)function, (void)block_size, (void)shared;
    TRY(standin_begin(STANDIN_hipModuleOccupancyMaxActiveBlocksPerMultiprocessor));
    *blocks = 1;
    return 0;
}

/* ---- compiling: refused, with a reason --------------------------------------------------------------------------- */

enum { HIPRTC_COMPILATION = 6 };
static const char reason[] = "the stand-in does not compile";

int hiprtcCreateProgram(void **program, const char *source, const char *name, int headers,
                        const char *const *header_texts, const char *const *header_names)
{
    (void)source, (void)name, (void)headers, (void)header_texts, (void)header_names;
    (void)standin_count(STANDIN_hiprtcCreateProgram);
    *program = anything;
    return 0;
}

int hiprtcCompileProgram(void *program, int options, const char *const *texts)
{
    (void)program, (void)options, (void)texts;
    (void)standin_count(STANDIN_hiprtcCompileProgram);
    return HIPRTC_COMPILATION;
}

int hiprtcDestroyProgram(void **program)
{
    (void)standin_count(STANDIN_hiprtcDestroyProgram);
    *program = NULL;
    return 0;
}

int hiprtcGetProgramLogSize(void *program, size_t *bytes)
{
    (void)program;
    (void)standin_count(STANDIN_hiprtcGetProgramLogSize);
    *bytes = sizeof reason;
    return 0;
}

int hiprtcGetProgramLog(void *program, char *text)
{
    (void)program;
    (void)standin_count(STANDIN_hiprtcGetProgramLog);
    memcpy(text, reason, sizeof reason);
    return 0;
}

int hiprtcGetCodeSize(void *program, size_t *bytes)
{
    (void)program;
    (void)standin_count(STANDIN_hiprtcGetCodeSize);
    *bytes = 0;
    return HIPRTC_COMPILATION;
}

int hiprtcGetCode(void *program, char *code)
{
    (void)program, (void)code;
    (void)standin_count(STANDIN_hiprtcGetCode);
    return HIPRTC_COMPILATION;
}
