#include "torch/errors.h"

#include "torch/symbols.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace
{

/* Laid out as c10::SourceLocation, which c10::Error's constructor takes. */
struct source_location {
    const char *function;
    const char *file;
    uint32_t line;
};

using constructor = void (*)(void *object, source_location where, std::string message);
using destructor = void (*)(void *object);

/* c10::OutOfMemoryError is a c10::Error with another virtual table. */
struct torchs_error {
    constructor construct = nullptr;
    std::type_info *type = nullptr;
    void **virtual_functions = nullptr; /* the first is the complete destructor */

    explicit operator bool() const
    {
        return construct && type && virtual_functions;
    }
};

/* sizeof(c10::Error) is 128 in PyTorch 2.11; room for a few more members costs nothing. */
constexpr size_t ERROR_BYTES = 1024;

torchs_error look_for()
{
    torchs_error error;
    error.construct =
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_"
                                       "traitsIcESaIcEEE");
    for (const char *of : { WA_TORCH_BASE, WA_TORCH_CORE, "libc10_hip.so" }) { /* the first since PyTorch 2.13 */
        void **const table = wa_torch_symbol(of, "_ZTVN3c1016OutOfMemoryErrorE");
        if (!table) continue;
        error.type = wa_torch_symbol(of, "_ZTIN3c1016OutOfMemoryErrorE");
        error.virtual_functions = table + WA_TABLE_HEAD;
        break;
    }
    return error;
}

const torchs_error &torchs()
{
    static const torchs_error error = look_for();
    return error;
}

class out_of_memory : public std::bad_alloc
{
  public:
    explicit out_of_memory(std::string text) : text_(std::move(text)) {}

    const char *what() const noexcept override
    {
        return text_.c_str();
    }

  private:
    std::string text_;
};

[[noreturn]] void throw_torchs(const torchs_error &error, const std::string &text)
{
    void *object = abi::__cxa_allocate_exception(ERROR_BYTES);
    destructor destroy = nullptr;
    error.construct(object, { "weir_torch_alloc", "weir", 0 }, text);
    *static_cast<void ***>(object) = error.virtual_functions;
    std::memcpy(&destroy, error.virtual_functions, sizeof destroy);
    abi::__cxa_throw(object, error.type, destroy);
}

/* As PyTorch writes it. */
std::string in_torchs_units(size_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB" };
    char text[64];
    double value = static_cast<double>(bytes) / 1024;
    size_t unit = 0;
    if (bytes <= 1024) return std::to_string(bytes) + " bytes";
    while (unit < 2 && value > 1024) {
        value /= 1024;
        unit++;
    }
    std::snprintf(text, sizeof text, "%.2f %s", value, units[unit]);
    return text;
}

/* A build for ROCm says HIP wherever one for CUDA says CUDA. */
const char *platform()
{
    void *const hip = dlopen("libc10_hip.so", RTLD_LAZY | RTLD_NOLOAD);
    if (hip) dlclose(hip); /* PyTorch keeps it loaded */
    return hip ? "HIP" : "CUDA";
}

[[noreturn]] void throw_out_of_memory(const std::string &tried, const std::string &text)
{
    const std::string message = std::string(platform()) + " out of memory. " + tried + "weir: " + text;
    if (torchs()) throw_torchs(torchs(), message);
    throw out_of_memory(message);
}

/* The thread's error text may be that of an earlier call: what is here may fail where nothing of libweir's does. */
const char *text_of(weir_status status)
{
    weir_error last{};
    last.size = sizeof last;
    (void)!weir_last_error(&last);
    return last.status == status ? weir_error_text() : weir_status_text(status);
}

} // namespace

extern "C" bool weir_torch_raises_its_own(void)
{
    return static_cast<bool>(torchs());
}

void wa_torch_throw_out_of_memory(int device, size_t bytes, const std::string &text)
{
    constexpr size_t EXBIBYTE = size_t{ 1 } << 60;
    weir_device_info info{};
    info.size = sizeof info;
    if (bytes >= EXBIBYTE) throw_out_of_memory("Tried to allocate more than 1EB memory. ", text);
    std::string tried = "Tried to allocate " + in_torchs_units(bytes) + ". ";
    if (weir_device_info_get(device, &info) == WEIR_OK)
        tried += "GPU " + std::to_string(device) + " has a total capacity of " + in_torchs_units(info.total_memory) +
                 " of which " + in_torchs_units(info.free_memory) + " is free. ";
    throw_out_of_memory(tried, text);
}

void wa_torch_check(weir_status status, const char *text)
{
    if (status == WEIR_OK) return;
    const std::string why = text ? text : text_of(status);
    if (status == WEIR_ERR_OUT_OF_MEMORY) throw_out_of_memory("", why);
    throw std::runtime_error("weir: " + why);
}
