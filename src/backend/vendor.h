/*
 * vendor: what the back ends of vendors, cuda and hip, have in common.
 */
#ifndef WR_BACKEND_VENDOR_H
#define WR_BACKEND_VENDOR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* What a code of the driver's means to weir; a row of errors.def. */
typedef struct wr_meaning {
    int code;
    weir_status status;
    bool ends; /* the device, or its context, is unusable from then on */
} wr_meaning;

/* A code that is not among the known ones is WEIR_ERR_DRIVER. */
wr_meaning wr_meaning_of(int code, const wr_meaning *known, size_t count);

/* ---- sizes that no device has ------------------------------------------------------------------------------------ */

/* Refused before the driver is asked, because its answer differs between versions. `total`: the device's memory. */
WR_CHECKED weir_status wr_vendor_check_size(const char *call, size_t bytes, uint64_t total);

/* Of virtual memory; a device that has none has a granularity of 0. */
WR_CHECKED weir_status wr_vendor_check_granules(const char *call, int ordinal, size_t bytes, uint64_t granularity);

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* The program's clock. */
weir_status wr_vendor_clock_ns(uint64_t *now);

/* Those that are one call of the driver. `vendor` is cuda or hip: its internal header has wr_VENDOR_frame,
 * wr_VENDOR_enter() and wr_VENDOR_last(). */

/* Defines an entry that calls `name` on the device `ordinal`. */
#define WR_ENTRY(vendor, entry, parameters, name, ...)                                                                 \
    weir_status wr_##vendor##_##entry parameters                                                                       \
    {                                                                                                                  \
        wr_##vendor##_frame frame;                                                                                     \
        WR_TRY(wr_##vendor##_enter(ordinal, &frame));                                                                  \
        return wr_##vendor##_last(&frame, name, __VA_ARGS__);                                                          \
    }

/* The same for a call that creates something through its first argument; *out is untouched when it fails. */
#define WR_MAKING_ENTRY(vendor, entry, parameters, type, name, ...)                                                    \
    weir_status wr_##vendor##_##entry parameters                                                                       \
    {                                                                                                                  \
        wr_##vendor##_frame frame;                                                                                     \
        type made = NULL;                                                                                              \
        WR_TRY(wr_##vendor##_enter(ordinal, &frame));                                                                  \
        WR_TRY(wr_##vendor##_last(&frame, name, &made, __VA_ARGS__));                                                  \
        *out = made;                                                                                                   \
        return WEIR_OK;                                                                                                \
    }

#endif
