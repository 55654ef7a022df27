#include "backend/hip/hip_internal.h"
#include "backend/library.h"
#include "base/dl.h"
#include "base/log.h"

#include <string.h>

wr_hip_api wr_hip_runtime;

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef enum need { REQUIRED, OPTIONAL, VMM } need;

static const struct symbol {
    const char *name;
    need need;
    size_t offset; /* of its pointer in wr_hip_api */
} symbols[] = {
#define X(need, result, name, parameters) { #name, need, offsetof(wr_hip_api, name) },
#include "backend/hip/symbols.def"
#undef X
};
#define SYMBOL_COUNT (sizeof symbols / sizeof symbols[0])

/* A runtime that found no device, so that it is not asked again: in ROCm 5 each call would look for one again, through
 * the kernel. */
static struct {
    void *library;
    const char *call;
    hipError_t code;
} without_device;

/* Virtual memory is used from ROCm 6 on, which has R0600: before, it had other structures and did not work. */
static weir_status find_symbols(void *library, wr_hip_api *api)
{
    bool vmm = wr_dl_find(library, "hipGetDevicePropertiesR0600") != NULL;
    for (size_t i = 0; i < SYMBOL_COUNT; i++) {
        void *found = NULL;
        if (symbols[i].need == REQUIRED)
            WR_TRY(wr_dl_symbol(library, "hip", symbols[i].name, &found));
        else
            found = wr_dl_find(library, symbols[i].name);
        if (symbols[i].need == VMM && found == NULL) vmm = false;
        memcpy((char *)api + symbols[i].offset, &found, sizeof found);
    }
    for (size_t i = 0; i < SYMBOL_COUNT && !vmm; i++)
        if (symbols[i].need == VMM) memset((char *)api + symbols[i].offset, 0, sizeof(void *));
    return WEIR_OK;
}

static weir_status load(void **out)
{
    wr_hip_api api = { 0 };
    void *library;
    WR_TRY(wr_dl_open("hip", wr_hip_sonames, &library));
    weir_status status = wr_library_one_runtime("hip", library, wr_hip_sonames);
    if (status == WEIR_OK) status = find_symbols(library, &api);
    if (status != WEIR_OK) {
        wr_dl_close(library);
        return status;
    }
    wr_hip_runtime =
        api; /* the library stays loaded for good: it may have started threads and registered exit functions */
    *out = library;
    return WEIR_OK;
}

static weir_status explain(wr_hip_device *device, const char *call, hipError_t code);

static weir_status no_device(void *library, const char *call, hipError_t code)
{
    without_device.library = library;
    without_device.call = call;
    without_device.code = code;
    return wr_hip_check(NULL, call, code);
}

static bool means_no_device(hipError_t code)
{
    return code == WR_hipErrorNoDevice || code == WR_hipErrorInvalidDevice;
}

weir_status wr_hip_open(const weir_backend_config *config)
{
    int count = 0;
    void *library = NULL;
    (void)config;
    WR_ENSURE(wr_hip.count == 0, WEIR_ERR_BUSY, "hip: the back end is already open");
    WR_TRY(load(&library));
    if (library == without_device.library) return explain(NULL, without_device.call, without_device.code);

    hipError_t code = wr_hip_runtime.hipInit(0);
    if (means_no_device(code)) return no_device(library, "hipInit", code);
    WR_TRY(wr_hip_check(NULL, "hipInit", code));
    code = wr_hip_runtime.hipGetDeviceCount(&count);
    if (code == WR_hipSuccess && count <= 0) code = WR_hipErrorNoDevice;
    if (means_no_device(code)) return no_device(library, "hipGetDeviceCount", code);
    WR_TRY(wr_hip_check(NULL, "hipGetDeviceCount", code));
    if (count > WR_HIP_DEVICES_MAX) {
        wr_log(WR_LOG_WARN, "hip: %d devices found; only the first %d are used", count, WR_HIP_DEVICES_MAX);
        count = WR_HIP_DEVICES_MAX;
    }
    wr_hip.count = count;
    return WEIR_OK;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const wr_meaning meanings[] = {
#define X(name, code, status, ends) { code, status, ends },
#include "backend/hip/errors.def"
#undef X
};

/* Codes of a capture that cannot go on, or has ended without a graph. Isolation is only a refused wait. */
static bool is_lost(hipError_t code)
{
    return code >= WR_hipErrorStreamCaptureInvalidated && code <= WR_hipErrorStreamCaptureUnjoined;
}

static const char *remedy(weir_status status, hipError_t code)
{
    switch (status) {
    case WEIR_ERR_OUT_OF_MEMORY: return "; free some, here or in another process (amd-smi process lists them)";
    case WEIR_ERR_NO_DEVICE:
        return "; see rocminfo, the permissions of /dev/kfd and /dev/dri (groups render and video), and "
               "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES";
    case WEIR_ERR_INCOMPATIBLE: return "; update the amdgpu driver";
    case WEIR_ERR_CAPTURE:
        return is_lost(code) ? "; the capture is lost: end it, unless this was its end, and capture again"
                             : "; end the capture, then call again";
    case WEIR_ERR_WRONG_THREAD: return "; end the capture in the thread that began it, or begin it relaxed";
    case WEIR_ERR_DEVICE_LOST: return "; this process can no longer use the device: restart it";
    default: return "";
    }
}

hipError_t wr_hip_own(hipError_t code)
{
    if (WR_UNLIKELY(code != WR_hipSuccess && code != WR_hipErrorNotReady)) (void)wr_hip_runtime.hipGetLastError();
    return code;
}

/* The code may be an old one, so nothing is cleared in the runtime. */
static weir_status explain(wr_hip_device *device, const char *call, hipError_t code)
{
    const wr_meaning meaning = wr_meaning_of(code, meanings, sizeof meanings / sizeof meanings[0]);
    const weir_status status = meaning.status;
    if (status == WEIR_OK || status == WEIR_ERR_NOT_READY) return status;
    if (meaning.ends && device != NULL) {
        int alive = WR_hipSuccess;
        atomic_compare_exchange_strong(&device->lost, &alive, code); /* the first reason stays */
    }

    const char *name = wr_hip_runtime.hipGetErrorName(code), *text = wr_hip_runtime.hipGetErrorString(code);
    if (name == NULL) name = "unnamed code";
    if (text == NULL || strcmp(text, name) == 0) text = weir_status_text(status); /* ROCm 5 has no texts */
    if (device == NULL)
        return wr_fail_native(status, "hip", code, "hip: %s: %s (%s, %d)%s", call, text, name, code,
                              remedy(status, code));
    return wr_fail_native(status, "hip", code, "hip: %s on device %td: %s (%s, %d)%s", call, device - wr_hip.devices,
                          text, name, code, remedy(status, code));
}

weir_status wr_hip_check(wr_hip_device *device, const char *call, hipError_t code)
{
    return WR_LIKELY(wr_hip_own(code) == WR_hipSuccess) ? WEIR_OK : explain(device, call, code);
}
