#include "base/size.h"
#include "standin/cuda/standin_internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64

/* A primary context keeps its address however often it is destroyed and made again. */
struct CUctx_st {
    int device;
    unsigned retained;
    atomic_bool alive;
    unsigned long long id;
    uint64_t peers; /* bit per device */
    bool green;     /* part of its device's primary one */
};

static int device_count; /* 0: not initialised */
static struct CUctx_st contexts[DEVICES_MAX];
static unsigned long long last_id;
static _Thread_local CUcontext current;

/* ---- counting and scripted failures ------------------------------------------------------------------------------ */

const char *const standin_names[] = {
#define X(need, name, suffix, version, parameters) #name,
#include "backend/cuda/symbols.def"
#undef X
};
const int standin_name_count = STANDIN_CALL_COUNT;
const int standin_invalid_stream = WR_CUDA_ERROR_INVALID_HANDLE;

void standin_cuda_fail(const char *name, unsigned long nth, int code)
{
    standin_fail(name, nth, code);
}

unsigned long standin_cuda_calls(const char *name)
{
    return standin_calls(name);
}

CUresult standin_begin(enum standin_call call)
{
    TRY(standin_count(call));
    pthread_mutex_lock(&standin_lock);
    bool initialised = device_count > 0;
    pthread_mutex_unlock(&standin_lock);
    return initialised ? WR_CUDA_SUCCESS : 3; /* CUDA_ERROR_NOT_INITIALIZED */
}

CUresult standin_enter(enum standin_call call, int *device)
{
    TRY(standin_begin(call));
    if (current == NULL) return WR_CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load(&current->alive)) return WR_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *device = current->device;
    return WR_CUDA_SUCCESS;
}

/* ---- the driver as a whole --------------------------------------------------------------------------------------- */

static uint64_t memory_per_device(void)
{
    const char *text = getenv("STANDIN_CUDA_MEMORY");
    uint64_t bytes = 512 * WR_MIB;
    if (text != NULL && !wr_size_parse(text, &bytes)) fprintf(stderr, "STANDIN_CUDA_MEMORY=%s is no size\n", text);
    return bytes;
}

static CUresult init_locked(void)
{
    const char *text = getenv("STANDIN_CUDA_DEVICES");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    long count = text != NULL ? strtol(text, NULL, 10) : 2;
    if (device_count > 0) return WR_CUDA_SUCCESS;
    if (count < 1 || count > DEVICES_MAX || (visible != NULL && visible[0] == '\0')) return WR_CUDA_ERROR_NO_DEVICE;
    weir_backend_config config = {
        .size = sizeof config,
        .host_devices = (uint64_t)count,
        .host_memory = memory_per_device(),
    };
    TRY(standin_code(wr_backend_host.open(&config)));
    for (int i = 0; i < count; i++) contexts[i].device = i;
    device_count = (int)count;
    return WR_CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    TRY(standin_count(STANDIN_cuInit));
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    CUresult code = init_locked();
    pthread_mutex_unlock(&standin_lock);
    return code;
}

__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char *name, void **address, int version,
                                                                    cuuint64_t flags,
                                                                    CUdriverProcAddressQueryResult *result);

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *result)
{
    static const struct {
        const char *name;
        int version;
        void *address;
    } functions[] = {
#define X(need, name, suffix, version, parameters) { #name, version, (void *)name##suffix },
#include "backend/cuda/symbols.def"
#undef X
    };
    (void)flags;
    *address = NULL;
    *result = 1; /* not found, which is no error */
    for (int i = 0; i < STANDIN_CALL_COUNT; i++) {
        if (strcmp(functions[i].name, name) != 0) continue;
        *result = version >= functions[i].version ? 0 : 2;
        if (*result == 0) *address = functions[i].address;
    }
    return WR_CUDA_SUCCESS;
}

static const struct {
    CUresult code;
    const char *name;
    weir_status status;
} errors[] = {
#define X(name, code, status, ends) { code, #name, status },
#include "backend/cuda/errors.def"
#undef X
};

CUresult cuGetErrorName(CUresult code, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) *text = errors[i].name;
    return *text != NULL ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) *text = weir_status_text(errors[i].status);
    return *text != NULL ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static CUresult check_device(CUdevice device)
{
    return device >= 0 && device < device_count ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count)
{
    TRY(standin_begin(STANDIN_cuDeviceGetCount));
    *count = device_count;
    return WR_CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    TRY(standin_begin(STANDIN_cuDeviceGet));
    TRY(check_device(ordinal));
    *device = ordinal;
    return WR_CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    TRY(standin_begin(STANDIN_cuDeviceGetName));
    TRY(check_device(device));
    snprintf(name, (size_t)length, "stand-in for a CUDA device (no GPU)");
    return WR_CUDA_SUCCESS;
}

int standin_can(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL || strcmp(text, "0") != 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    TRY(standin_begin(STANDIN_cuDeviceGetAttribute));
    TRY(check_device(device));
    switch (attribute) {
    case WR_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return WR_CUDA_SUCCESS;
    case WR_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 7; return WR_CUDA_SUCCESS;
    case WR_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = standin_can("STANDIN_CUDA_VM");
        return WR_CUDA_SUCCESS;
    case WR_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = standin_can("STANDIN_CUDA_EXPORTS");
        return WR_CUDA_SUCCESS;
    case WR_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *value = standin_can("STANDIN_CUDA_RDMA");
        return WR_CUDA_SUCCESS;
    default: return WR_CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceCanAccessPeer(int *reaches, CUdevice device, CUdevice peer)
{
    TRY(standin_begin(STANDIN_cuDeviceCanAccessPeer));
    TRY(check_device(device));
    TRY(check_device(peer));
    *reaches = device != peer && standin_can("STANDIN_CUDA_PEERS");
    return WR_CUDA_SUCCESS;
}

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

static CUresult revive_locked(CUcontext context)
{
    weir_device_caps caps;
    TRY(standin_code(wr_backend_host.device_open(context->device, &caps)));
    context->id = ++last_id;
    context->peers = 0;
    atomic_store(&context->alive, true);
    return WR_CUDA_SUCCESS;
}

static CUresult destroy_locked(CUcontext context)
{
    if (!atomic_exchange(&context->alive, false)) return WR_CUDA_SUCCESS;
    standin_forget_captures(context->device);
    standin_forget_memory(context->device);
    standin_forget_streams(context->device);
    return standin_code(wr_backend_host.device_close(context->device));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    TRY(standin_begin(STANDIN_cuDevicePrimaryCtxRetain));
    TRY(check_device(device));
    CUcontext found = &contexts[device];
    pthread_mutex_lock(&standin_lock);
    CUresult code = atomic_load(&found->alive) ? WR_CUDA_SUCCESS : revive_locked(found);
    if (code == WR_CUDA_SUCCESS) found->retained++;
    pthread_mutex_unlock(&standin_lock);
    if (code == WR_CUDA_SUCCESS) *context = found;
    return code;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    TRY(standin_begin(STANDIN_cuDevicePrimaryCtxRelease));
    TRY(check_device(device));
    CUcontext context = &contexts[device];
    pthread_mutex_lock(&standin_lock);
    CUresult code = context->retained > 0 ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_INVALID_CONTEXT;
    if (code == WR_CUDA_SUCCESS && --context->retained == 0) code = destroy_locked(context);
    pthread_mutex_unlock(&standin_lock);
    return code;
}

/* weir never calls this; tests do, as another user of the device. It does not release retains. */
__attribute__((visibility("default"))) CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    TRY(check_device(device));
    pthread_mutex_lock(&standin_lock);
    CUresult code = destroy_locked(&contexts[device]);
    pthread_mutex_unlock(&standin_lock);
    return code;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    TRY(standin_begin(STANDIN_cuDevicePrimaryCtxGetState));
    TRY(check_device(device));
    *flags = 0;
    *active = atomic_load(&contexts[device].alive);
    return WR_CUDA_SUCCESS;
}

/* weir never calls this either: a program's own context. */
__attribute__((visibility("default"))) CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
__attribute__((visibility("default"))) CUresult cuCtxDestroy_v2(CUcontext context);

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    TRY(check_device(device));
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    CUcontext made = calloc(1, sizeof *made);
    if (made == NULL) return WR_CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&standin_lock);
    made->device = device;
    made->id = ++last_id;
    atomic_init(&made->alive, true);
    pthread_mutex_unlock(&standin_lock);
    *context = current = made;
    return WR_CUDA_SUCCESS;
}

CUresult standin_cuda_green_context(CUcontext *context, CUdevice device)
{
    TRY(cuCtxCreate_v2(context, 0, device));
    (*context)->green = true;
    return WR_CUDA_SUCCESS;
}

CUcontext standin_whole_context(CUcontext context)
{
    return context->green ? &contexts[context->device] : context;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (context == NULL || (context >= contexts && context < contexts + DEVICES_MAX))
        return WR_CUDA_ERROR_INVALID_CONTEXT;
    if (current == context) current = NULL;
    standin_end_streams(context, context->device);
    free(context);
    return WR_CUDA_SUCCESS;
}

/* ---- the thread's current context -------------------------------------------------------------------------------- */

CUcontext standin_current(void)
{
    return current;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    TRY(standin_begin(STANDIN_cuCtxGetCurrent));
    *context = current;
    return WR_CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    TRY(standin_begin(STANDIN_cuCtxSetCurrent));
    if (context != NULL && !atomic_load(&context->alive)) return WR_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    current = context;
    return WR_CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return standin_enter(STANDIN_cuCtxGetDevice, device);
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    TRY(standin_begin(STANDIN_cuCtxGetId));
    if (context == NULL) context = current;
    if (context == NULL) return WR_CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load(&context->alive)) return WR_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_lock(&standin_lock);
    *id = context->id;
    pthread_mutex_unlock(&standin_lock);
    return WR_CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    int device;
    TRY(standin_enter(STANDIN_cuCtxGetStreamPriorityRange, &device));
    *least = 0;
    *greatest = -5;
    return WR_CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_cuCtxEnablePeerAccess, &device));
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    if (peer == NULL || peer == current || !atomic_load(&peer->alive)) return WR_CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    bool already = current->peers >> peer->device & 1;
    current->peers |= (uint64_t)1 << peer->device;
    pthread_mutex_unlock(&standin_lock);
    return already ? WR_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                   : standin_code(wr_backend_host.peer_enable(device, peer->device));
}
