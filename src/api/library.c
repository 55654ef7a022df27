/*
 * Opening, closing and asking about the library.
 */
#include "base/sized.h"
#include "device/runtime.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

weir_status weir_open(const weir_settings *settings)
{
    return wr_runtime_open(settings);
}

weir_status weir_close(void)
{
    return wr_runtime_close();
}

const char *weir_version(void)
{
    return TEXT(WEIR_VERSION_MAJOR) "." TEXT(WEIR_VERSION_MINOR) "." TEXT(WEIR_VERSION_PATCH);
}

weir_status weir_backend_name(const char **name)
{
    WR_ENSURE(name, WEIR_ERR_INVALID_ARGUMENT, "weir_backend_name: name is NULL");
    WR_TRY(wr_runtime_enter());
    *name = wr_runtime_global.backend->name;
    return WEIR_OK;
}

weir_status weir_option_get(unsigned index, weir_option_info *out)
{
    WR_TRY(wr_sized_check_out("weir_option_get", "weir_option_info", out, sizeof *out));
    WR_TRY(wr_runtime_enter());
    WR_ENSURE(index < WR_OPTION_COUNT, WEIR_ERR_INVALID_ARGUMENT,
              "weir_option_get: there are %d options; index %u is out of range", WR_OPTION_COUNT, index);
    weir_option_info info = { 0 };
    wr_options_describe(&wr_runtime_global.options, (wr_option_id)index, &info);
    wr_sized_give(out, &info, sizeof info);
    return WEIR_OK;
}
