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
#define WR_COLD __attribute__((noinline, cold)) /* what is done so seldom that it should not lie in a hot path's way */
#define WR_FLATTEN __attribute__((flatten))     /* what it calls is inlined: many small steps on a hot path */
#define WR_ALWAYS_INLINE inline __attribute__((always_inline)) /* hit paths, whatever their size */
/* In a function of the API, or one that is always inlined there: where in the program it was called. */
#define WR_CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define WR_CACHE_LINES 128 /* which processors fetch together: what threads write apart is as far apart */
/* For a function that reads what others may be writing, and checks what it read. */
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

/* Between two looks at what another processor is about to change. */
#if defined(__x86_64__) || defined(__i386__)
#define WR_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define WR_PAUSE() __asm__ volatile("yield")
#else
#define WR_PAUSE() ((void)0)
#endif

/* Thread-local data reached without a call: the library is loaded at start-up or with room in static TLS. */
#define WR_THREAD_LOCAL _Thread_local

#endif
