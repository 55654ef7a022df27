/*
 * log: bounded lines to stderr, without allocation. Off unless the option `log` says otherwise. One write() per
 * line, so that lines of several threads do not mix.
 */
#ifndef WR_BASE_LOG_H
#define WR_BASE_LOG_H

#include "base/compiler.h"

#include <stdatomic.h>

typedef enum wr_log_level { WR_LOG_OFF, WR_LOG_ERROR, WR_LOG_WARN, WR_LOG_INFO, WR_LOG_DEBUG } wr_log_level;

extern atomic_int wr_log_threshold; /* of wr_log_level; WR_LOG_OFF at start */

void wr_log_write(wr_log_level level, const char *format, ...) WR_PRINTF(2, 3);

/* The arguments are not evaluated when the level is off. */
#define wr_log(level, ...)                                                                                             \
    do {                                                                                                               \
        if (WR_UNLIKELY((int)(level) <= atomic_load_explicit(&wr_log_threshold, memory_order_relaxed)))                \
            wr_log_write((level), __VA_ARGS__);                                                                        \
    } while (0)

#endif
