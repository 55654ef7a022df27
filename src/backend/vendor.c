#include "backend/vendor.h"
#include "base/clock.h"
#include "base/size.h"

#include <inttypes.h>

wr_meaning wr_meaning_of(int code, const wr_meaning *known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (known[i].code == code) return known[i];
    return (wr_meaning){ code, WEIR_ERR_DRIVER, false };
}

weir_status wr_vendor_check_size(const char *call, size_t bytes, uint64_t total)
{
    char asked[WR_SIZE_TEXT], all[WR_SIZE_TEXT];
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "%s: 0 bytes requested", call);
    WR_ENSURE(bytes <= total, WEIR_ERR_OUT_OF_MEMORY, "%s: %s requested, but the whole device has %s; request less",
              call, wr_size_format(bytes, asked), wr_size_format(total, all));
    return WEIR_OK;
}

weir_status wr_vendor_check_granules(const char *call, int ordinal, size_t bytes, uint64_t granularity)
{
    WR_ENSURE(granularity > 0, WEIR_ERR_NOT_SUPPORTED, "%s: device %d has no virtual memory management", call, ordinal);
    WR_ENSURE(bytes > 0 && bytes % granularity == 0, WEIR_ERR_INVALID_ARGUMENT,
              "%s: %zu bytes are not a multiple of the granularity of %" PRIu64 " bytes", call, bytes, granularity);
    return WEIR_OK;
}

weir_status wr_vendor_clock_ns(uint64_t *now)
{
    *now = wr_clock_ns(CLOCK_MONOTONIC);
    return WEIR_OK;
}
