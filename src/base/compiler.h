/*
 * compiler: the few things that standard C does not have. The only header with compiler conditionals.
 */
#ifndef WR_BASE_COMPILER_H
#define WR_BASE_COMPILER_H

#define WR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WR_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WR_CHECKED __attribute__((warn_unused_result))
#define WR_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define WR_NOINLINE __attribute__((noinline))
#define WR_COLD __attribute__((noinline, cold)) /* so rare that its code should not lie in a hot path */
#define WR_FLATTEN __attribute__((flatten))     /* inlines what it calls: many small steps on a hot path */
#define WR_ALWAYS_INLINE inline __attribute__((always_inline)) /* hit paths, whatever their size */
/* The return address into the program: in an API function, or a function always inlined into one. */
#define WR_CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define WR_CACHE_LINES 128 /* bytes fetched together: data that different threads write is this far apart */
/* For a function that reads what other threads may be writing, and then checks what it read. */
#define WR_RACES __attribute__((no_sanitize("thread")))

#if defined(__SANITIZE_THREAD__)
#define WR_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WR_THREAD_SANITIZER 1
#endif
#endif
#ifndef WR_THREAD_SANITIZER
#define WR_THREAD_SANITIZER 0
#endif

/* Between two polls of what another processor is about to change. */
#if defined(__x86_64__) || defined(__i386__)
#define WR_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define WR_PAUSE() __asm__ volatile("isb") /* some nanoseconds; `yield` takes none on most processors */
#else
#define WR_PAUSE() ((void)0)
#endif

/* Accessed without a call: the library is loaded at start-up, or there is room in static TLS. */
#define WR_THREAD_LOCAL _Thread_local

#endif
