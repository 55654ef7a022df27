/*
 * entry: entries of a back end that are one call of its driver. `vendor` is cuda or hip: its internal header has
 * wr_VENDOR_frame, wr_VENDOR_enter() and wr_VENDOR_last().
 */
#ifndef WR_BACKEND_ENTRY_H
#define WR_BACKEND_ENTRY_H

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
