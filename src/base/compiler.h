/*
 * compiler: the few words that the C standard does not have. The only header with compiler conditionals.
 */
#ifndef WR_BASE_COMPILER_H
#define WR_BASE_COMPILER_H

#define WR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WR_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WR_CHECKED __attribute__((warn_unused_result))
#define WR_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define WR_NOINLINE __attribute__((noinline))
#define WR_CACHE_LINE 64

/* Thread-local data reached without a call: the library is loaded at start-up or with room in static TLS. */
#define WR_THREAD_LOCAL _Thread_local

#endif
