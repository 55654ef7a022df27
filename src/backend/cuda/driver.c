#include "backend/cuda/cuda_internal.h"
#include "base/dl.h"
#include "base/log.h"

#include <string.h>

wr_cuda_api wr_cu;

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef enum need { REQUIRED, OPTIONAL, VMM } need;

typedef CUresult (*proc_address)(const char *name, void **address, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *result);

static const struct symbol {
    const char *name, *export;
    int version;
    need need;
    size_t offset; /* of its pointer in wr_cuda_api */
} symbols[] = {
#define X(need, name, suffix, version, parameters) { #name, #name #suffix, version, need, offsetof(wr_cuda_api, name) },
#include "backend/cuda/symbols.def"
#undef X
};
#define SYMBOL_COUNT (sizeof symbols / sizeof symbols[0])

/* Tries the driver's own lookup first, which knows about versions (NULL before CUDA 12). It may return success although
 * it found nothing. *address is NULL in the end where the driver lacks a function that is not required. */
static weir_status find_symbol(void *library, proc_address lookup, const struct symbol *symbol, void **address)
{
    CUdriverProcAddressQueryResult result = 0;
    *address = NULL;
    if (lookup != NULL && lookup(symbol->name, address, symbol->version, 0, &result) == WR_CUDA_SUCCESS &&
        result == 0 && *address != NULL)
        return WEIR_OK;
    *address = NULL;
    if (symbol->need == REQUIRED) return wr_dl_symbol(library, "cuda", symbol->export, address);
    *address = wr_dl_find(library, symbol->export);
    return WEIR_OK;
}

static weir_status find_symbols(void *library, wr_cuda_api *api)
{
    void *found = wr_dl_find(library, "cuGetProcAddress_v2");
    proc_address lookup;
    bool vmm = true;
    memcpy(&lookup, &found, sizeof found);
    for (size_t i = 0; i < SYMBOL_COUNT; i++) {
        WR_TRY(find_symbol(library, lookup, &symbols[i], &found));
        if (symbols[i].need == VMM && found == NULL) vmm = false;
        memcpy((char *)api + symbols[i].offset, &found, sizeof found);
    }
    for (size_t i = 0; i < SYMBOL_COUNT && !vmm; i++)
        if (symbols[i].need == VMM) memset((char *)api + symbols[i].offset, 0, sizeof found);
    return WEIR_OK;
}

/* Never the bare libcuda.so: toolkits have a stub of that name. */
static weir_status load(void)
{
    static const char *const sonames[] = { "libcuda.so.1", NULL };
    wr_cuda_api api = { 0 };
    void *library;
    WR_TRY(wr_dl_open("cuda", sonames, &library));
    weir_status status = find_symbols(library, &api);
    if (status != WEIR_OK) {
        wr_dl_close(library);
        return status;
    }
    wr_cu = api; /* the library stays loaded for good: it may have started threads and registered exit functions */
    return WEIR_OK;
}

weir_status wr_cuda_open(const weir_backend_config *config)
{
    int count = 0;
    (void)config;
    WR_ENSURE(wr_cuda.count == 0, WEIR_ERR_BUSY, "cuda: the back end is already open");
    WR_TRY(load());
    WR_TRY(wr_cuda_check(NULL, "cuInit", wr_cu.cuInit(0)));
    WR_TRY(wr_cuda_check(NULL, "cuDeviceGetCount", wr_cu.cuDeviceGetCount(&count)));
    WR_TRY(wr_cuda_check(NULL, "cuDeviceGetCount", count > 0 ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_NO_DEVICE));
    if (count > WR_CUDA_DEVICES_MAX) {
        wr_log(WR_LOG_WARN, "cuda: %d devices found; only the first %d are used", count, WR_CUDA_DEVICES_MAX);
        count = WR_CUDA_DEVICES_MAX;
    }
    for (int i = 0; i < count; i++)
        WR_TRY(wr_cuda_check(NULL, "cuDeviceGet", wr_cu.cuDeviceGet(&wr_cuda.devices[i].handle, i)));
    wr_cuda.count = count;
    return WEIR_OK;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const wr_meaning meanings[] = {
#define X(name, code, status, ends) { code, status, ends },
#include "backend/cuda/errors.def"
#undef X
};

/* Codes of a capture that cannot go on, or has ended without a graph. */
static bool is_lost(CUresult code)
{
    return code >= WR_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && code <= WR_CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

static const char *remedy(weir_status status, CUresult code)
{
    switch (status) {
    case WEIR_ERR_OUT_OF_MEMORY: return "; free some, here or in another process (nvidia-smi lists them)";
    case WEIR_ERR_NO_LIBRARY: return "; set WEIR_LIB_CUDA to the driver's libcuda.so.1, not to a toolkit's stub";
    case WEIR_ERR_NO_DEVICE: return "; see nvidia-smi and CUDA_VISIBLE_DEVICES";
    case WEIR_ERR_BUSY: return "; another process has exclusive use of the device (see nvidia-smi -q -d COMPUTE)";
    case WEIR_ERR_INCOMPATIBLE: return "; update the NVIDIA driver";
    case WEIR_ERR_CAPTURE:
        return is_lost(code) ? "; the capture is lost: end it, unless this was its end, and capture again"
                             : "; end the capture, then call again";
    case WEIR_ERR_WRONG_THREAD: return "; end the capture in the thread that began it, or begin it relaxed";
    case WEIR_ERR_DEVICE_LOST:
        return "; the device's context can no longer be used: close the library and open it again, or restart the "
               "process";
    case WEIR_ERR_INVALID_STREAM:
        return "; the green context of the stream has ended: if weir knows the stream, forget it with weir_stream_destroy()";
    default: return "";
    }
}

weir_status wr_cuda_fail(const wr_cuda_device *device, const char *call, CUresult code, weir_status status)
{
    const char *name = NULL, *text = NULL;
    if (wr_cu.cuGetErrorName(code, &name) != WR_CUDA_SUCCESS || name == NULL) name = "unnamed code";
    if (wr_cu.cuGetErrorString(code, &text) != WR_CUDA_SUCCESS || text == NULL) text = "unknown error";
    if (device == NULL)
        return wr_fail_native(status, "cuda", code, "cuda: %s: %s (%s, %d)%s", call, text, name, code,
                              remedy(status, code));
    return wr_fail_native(status, "cuda", code, "cuda: %s on device %td: %s (%s, %d)%s", call, device - wr_cuda.devices,
                          text, name, code, remedy(status, code));
}

weir_status wr_cuda_check(wr_cuda_device *device, const char *call, CUresult code)
{
    if (WR_LIKELY(code == WR_CUDA_SUCCESS)) return WEIR_OK;
    const wr_meaning meaning = wr_meaning_of(code, meanings, sizeof meanings / sizeof meanings[0]);
    const weir_status status = meaning.status;
    if (status == WEIR_OK || status == WEIR_ERR_NOT_READY) return status;
    if (meaning.ends && device != NULL) {
        int alive = WR_CUDA_SUCCESS;
        atomic_compare_exchange_strong(&device->lost, &alive, code); /* the first reason stays */
    }
    return wr_cuda_fail(device, call, code, status);
}
