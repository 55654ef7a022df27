#include "backend/host/host_internal.h"
#include "base/size.h"
#include "standin/hip/standin_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 64

static bool started;
static pid_t owner; /* the process that started it */
static int device_count;
static atomic_bool ready[DEVICES_MAX]; /* opened on the host back end; set under standin_lock */
static _Thread_local int current, last_error;
static atomic_ulong dead_streams;

/* ---- counting and scripted failures ------------------------------------------------------------------------------ */

const char *const standin_names[] = {
#define X(need, result, name, parameters) #name,
#include "backend/hip/symbols.def"
#undef X
#define X(result, name, parameters) #name,
#include "standin/hip/extras.def"
#undef X
};
const int standin_name_count = STANDIN_CALL_COUNT;
const int standin_invalid_stream = WR_hipErrorContextIsDestroyed;

void standin_hip_fail(const char *name, unsigned long nth, int code)
{
    standin_fail(name, nth, code);
}

unsigned long standin_hip_calls(const char *name)
{
    return standin_calls(name);
}

unsigned long standin_hip_dead_streams(void)
{
    return atomic_load(&dead_streams);
}

const char *standin_hip_logged(unsigned long back)
{
    return standin_logged(back);
}

int standin_last(int code)
{
    if ((code != 0 && code != NOT_READY) || standin_hip_major < 7) last_error = code;
    return code;
}

hipError_t hipPeekAtLastError(void)
{
    (void)standin_count(STANDIN_hipPeekAtLastError);
    return last_error;
}

hipError_t hipGetLastError(void)
{
    (void)standin_count(STANDIN_hipGetLastError);
    int code = last_error;
    last_error = 0;
    return code;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

uint64_t standin_memory(void)
{
    const char *text = getenv("STANDIN_HIP_MEMORY");
    uint64_t bytes = 512 * WR_MIB;
    if (text != NULL && !wr_size_parse(text, &bytes)) fprintf(stderr, "STANDIN_HIP_MEMORY=%s is no size\n", text);
    return bytes;
}

static const char *architecture(void)
{
    const char *text = getenv("STANDIN_HIP_ARCH");
    return text != NULL ? text : "gfx90a:sramecc+:xnack-";
}

/* "gfx90a" is 9.0, "gfx1100" 11.0: the last two digits are not the major. */
int standin_architecture_major(void)
{
    size_t digits = strcspn(architecture() + 3, ":");
    char text[8] = "";
    snprintf(text, sizeof text, "%.*s", (int)(digits > 2 ? digits - 2 : 0), architecture() + 3);
    return (int)strtol(text, NULL, 10);
}

int standin_architecture_minor(void)
{
    size_t digits = strcspn(architecture() + 3, ":");
    return digits > 2 ? architecture()[3 + digits - 2] - '0' : 0;
}

static int start_locked(void)
{
    const char *text = getenv("STANDIN_HIP_DEVICES");
    long count = text != NULL ? strtol(text, NULL, 10) : 2;
    started = true;
    owner = getpid();
    if (count < 1 || count > DEVICES_MAX) return 0;
    weir_backend_config config = {
        .size = sizeof config,
        .host_devices = (uint64_t)count,
        .host_memory = standin_memory(),
    };
    TRY(standin_code(wr_backend_host.open(&config)));
    device_count = (int)count;
    return 0;
}

int standin_begin(enum standin_call call)
{
    TRY(standin_last(standin_count((int)call)));
    pthread_mutex_lock(&standin_lock);
    int code = started ? 0 : start_locked();
    pthread_mutex_unlock(&standin_lock);
    if (code == 0 && device_count == 0) code = WR_hipErrorNoDevice;
    return standin_last(code);
}

static int make_ready(int device)
{
    weir_device_caps caps;
    if (atomic_load(&ready[device])) return 0;
    pthread_mutex_lock(&standin_lock);
    int code = atomic_load(&ready[device]) ? 0 : standin_code(wr_backend_host.device_open(device, &caps));
    if (code == 0) atomic_store(&ready[device], true);
    pthread_mutex_unlock(&standin_lock);
    return code;
}

int standin_enter(enum standin_call call, int *device)
{
    TRY(standin_begin(call));
    TRY(make_ready(current));
    *device = current;
    return 0;
}

int standin_enter_stream(enum standin_call call, void *stream, int *device)
{
    standin_record known;
    TRY(standin_enter(call, device));
    if (standin_stream(stream) == NULL) return 0;
    if (standin_recall(STREAM, (uintptr_t)stream, &known) != 0) {
        atomic_fetch_add(&dead_streams, 1);
        return standin_last(standin_invalid_stream);
    }
    *device = known.device;
    return 0;
}

int standin_enter_event(enum standin_call call, void *event, int *device)
{
    TRY(standin_enter(call, device));
    if (event == NULL) return standin_last(INVALID_HANDLE);
    *device = ((const wr_host_object *)event)->device;
    return 0;
}

void standin_wait_for_all(int device)
{
    wr_host_stream *stream;
    uint64_t serial = 0;
    while ((stream = wr_host_stream_after(&wr_host.devices[device], serial, true)) != NULL) {
        serial = stream->serial;
        wr_host_fence fence = { stream, atomic_load(&stream->queued) };
        wr_host_fence_reach(&fence);
        wr_host_stream_unref(stream);
    }
}

/* HIP has no call that releases a device. AMD's libraries end before this one, because they depend on it. A child of
 * fork() has none of the threads to wait for. */
__attribute__((destructor)) static void end(void)
{
    if (device_count > 0 && getpid() == owner) (void)wr_backend_host.close();
    device_count = 0;
}

/* ROCm 5 returns another code here than everywhere else. */
hipError_t hipInit(unsigned int flags)
{
    int code = standin_begin(STANDIN_hipInit);
    if (code == WR_hipErrorNoDevice && standin_hip_major < 6) code = WR_hipErrorInvalidDevice;
    return code == 0 && flags != 0 ? INVALID_VALUE : code;
}

static int version(enum standin_call call, int *out)
{
    static const int versions[] = { [5] = 50221153, [6] = 60443484, [7] = 70125424 };
    (void)standin_count((int)call);
    *out = versions[standin_hip_major];
    return 0;
}

hipError_t hipRuntimeGetVersion(int *out)
{
    return version(STANDIN_hipRuntimeGetVersion, out);
}

hipError_t hipDriverGetVersion(int *out)
{
    return version(STANDIN_hipDriverGetVersion, out);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const struct {
    hipError_t code;
    const char *name;
    weir_status status;
} errors[] = {
#define X(name, code, status, ends) { code, #name, status },
#include "backend/hip/errors.def"
#undef X
};

const char *hipGetErrorName(hipError_t code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return errors[i].name;
    return "hipErrorUnknown";
}

const char *hipGetErrorString(hipError_t code)
{
    if (standin_hip_major < 6) return hipGetErrorName(code);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return weir_status_text(errors[i].status);
    return "unknown error";
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int check_device(int device)
{
    return standin_last(device >= 0 && device < device_count ? 0 : WR_hipErrorInvalidDevice);
}

hipError_t hipGetDeviceCount(int *count)
{
    *count = 0;
    TRY(standin_begin(STANDIN_hipGetDeviceCount));
    *count = device_count;
    return 0;
}

hipError_t hipGetDevice(int *device)
{
    TRY(standin_begin(STANDIN_hipGetDevice));
    *device = current;
    return 0;
}

hipError_t hipSetDevice(int device)
{
    TRY(standin_begin(STANDIN_hipSetDevice));
    TRY(check_device(device));
    current = device;
    return 0;
}

hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device)
{
    TRY(standin_begin(STANDIN_hipDeviceGetName));
    TRY(check_device(device));
    snprintf(name, (size_t)length, "stand-in, no AMD GPU");
    return 0;
}

hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device)
{
    TRY(standin_begin(STANDIN_hipDeviceComputeCapability));
    TRY(check_device(device));
    *major = standin_architecture_major();
    *minor = standin_architecture_minor();
    return 0;
}

static bool switched_off(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && strcmp(text, "0") == 0;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
    TRY(standin_begin(STANDIN_hipDeviceGetAttribute));
    TRY(check_device(device));
    switch (attribute) {
#define X(name, number, what)                                                                                          \
    case number: *value = (what); return 0;
#include "standin/hip/attributes.def"
#undef X
    case WR_hipDeviceAttributeVirtualMemoryManagementSupported:
        if (standin_hip_major < 6) break; /* not an attribute there */
        *value = !switched_off("STANDIN_HIP_VMM");
        return 0;
    default: break;
    }
    return standin_last(INVALID_VALUE);
}

static void fill_properties(char *properties, bool now)
{
    const size_t size = now ? sizeof(hipDeviceProp_tR0600) : sizeof(hipDeviceProp_tR0000);
    memset(properties, 0, size);
    snprintf(properties, 256, "stand-in, no AMD GPU");
#define X(member, type, old_offset, new_offset, value)                                                                 \
    {                                                                                                                  \
        const type told = (type)(value);                                                                               \
        memcpy(properties + (now ? (new_offset) : (old_offset)), &told, sizeof told);                                  \
    }
#include "standin/hip/properties.def"
#undef X
    char *name =
        properties + (now ? offsetof(hipDeviceProp_tR0600, gcnArchName) : offsetof(hipDeviceProp_tR0000, gcnArchName));
    snprintf(name, 256, "%s", architecture());
}

hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000 *properties, int device)
{
    TRY(standin_begin(STANDIN_hipGetDeviceProperties));
    TRY(check_device(device));
    fill_properties((char *)properties, false);
    return 0;
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device)
{
    TRY(standin_begin(STANDIN_hipGetDevicePropertiesR0600));
    TRY(check_device(device));
    fill_properties((char *)properties, true);
    return 0;
}

hipError_t hipDeviceTotalMem(size_t *bytes, int device)
{
    TRY(standin_begin(STANDIN_hipDeviceTotalMem));
    TRY(check_device(device));
    *bytes = standin_memory();
    return 0;
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    TRY(standin_begin(STANDIN_hipDeviceGetStreamPriorityRange));
    *least = 1;
    *greatest = -1;
    return 0;
}

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    TRY(standin_begin(STANDIN_hipDeviceCanAccessPeer));
    TRY(check_device(device));
    TRY(check_device(peer));
    *can = device != peer && !switched_off("STANDIN_HIP_PEERS");
    return 0;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    static uint64_t peers[DEVICES_MAX]; /* bit per device */
    int device;
    TRY(standin_enter(STANDIN_hipDeviceEnablePeerAccess, &device));
    TRY(check_device(peer));
    if (flags != 0 || peer == device) return standin_last(flags != 0 ? INVALID_VALUE : WR_hipErrorInvalidDevice);
    TRY(make_ready(peer));
    pthread_mutex_lock(&standin_lock);
    bool already = peers[device] >> peer & 1;
    peers[device] |= (uint64_t)1 << peer;
    pthread_mutex_unlock(&standin_lock);
    return already ? WR_hipErrorPeerAccessAlreadyEnabled
                   : standin_last(standin_code(wr_backend_host.peer_enable(device, peer)));
}
