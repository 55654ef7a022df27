/*
 * status: failing with a reason. The reason is the calling thread's own (no lock, no allocation, lives with the
 * thread); the code travels by return value.
 */
#ifndef WR_BASE_STATUS_H
#define WR_BASE_STATUS_H

#include "base/compiler.h"
#include "weir/weir.h"

/* Sets this thread's error text and returns `status`: `return wr_fail(WEIR_ERR_BUSY, "stream %p ...", s);`
 * The text says what was asked for, what was found, and the remedy. */
WR_CHECKED weir_status wr_fail(weir_status status, const char *format, ...) WR_PRINTF(2, 3);

/* As wr_fail, for a driver's or vendor library's refusal: keeps its name and its own code too. */
WR_CHECKED weir_status wr_fail_native(weir_status status, const char *library, int64_t native, const char *format, ...)
    WR_PRINTF(4, 5);

/* Puts context in front of this thread's error text ("allocating 4.0 MiB on device 1: " + the old text). */
void wr_fail_prefix(const char *format, ...) WR_PRINTF(1, 2);

/* Puts the public function `call` in front when `status` is a refusal of the pointer that it was given, whose text was
 * written further down, where the function is not known. Returns `status`. */
WR_CHECKED weir_status wr_fail_in(const char *call, weir_status status);

/* Room for details of this thread's failure for programs, which last until the next failure. Most are never asked for,
 * so they are numbers, zeroed here, and become text when they are: `write` gets them and what wr_last_detail() was
 * given. NULL: there is no memory for them, which changes nothing else. */
typedef void wr_detail_write(const void *detail, void *to);
void *wr_fail_detail(size_t bytes, wr_detail_write *write);
void wr_last_detail(void *to); /* writes nothing when there are none */

/* Forwards a failure. */
#define WR_TRY(call)                                                                                                   \
    do {                                                                                                               \
        weir_status wr_try_status_ = (call);                                                                           \
        if (WR_UNLIKELY(wr_try_status_ != WEIR_OK)) return wr_try_status_;                                             \
    } while (0)

/* Refuses: WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_alloc: out is NULL");
 * Returns `status` itself, not what wr_fail() returns, so that compilers and analysers see that it is not WEIR_OK. */
#define WR_ENSURE(condition, status, ...)                                                                              \
    do {                                                                                                               \
        if (WR_UNLIKELY(!(condition))) {                                                                               \
            (void)!wr_fail((status), __VA_ARGS__);                                                                     \
            return (status);                                                                                           \
        }                                                                                                              \
    } while (0)

/* Whether it is one of weir's statuses other than WEIR_OK. */
bool wr_status_is_error(weir_status status);

/* The calling thread's last failure, set aside while something else may fail. */
typedef struct wr_saved_failure {
    void *error;
    weir_status status;
} wr_saved_failure;

/* Between the two calls the thread has no failure; restoring discards any that came meanwhile. */
wr_saved_failure wr_fail_save(void);
void wr_fail_restore(wr_saved_failure saved);

/* Clean-up whose own failure the caller is not told. */
#define wr_clean_up(call)                                                                                              \
    do {                                                                                                               \
        const wr_saved_failure wr_first_ = wr_fail_save();                                                             \
        (void)!(call);                                                                                                 \
        wr_fail_restore(wr_first_);                                                                                    \
    } while (0)

/* Clean-up whose own failure the caller is told only if there was none before: the first failure's status and text
 * win. */
#define wr_keep_first(kept, call)                                                                                      \
    do {                                                                                                               \
        weir_status *const wr_kept_ = (kept);                                                                          \
        const wr_saved_failure wr_first_ =                                                                             \
            *wr_kept_ == WEIR_OK ? (wr_saved_failure){ NULL, WEIR_OK } : wr_fail_save();                               \
        const weir_status wr_later_ = (call);                                                                          \
        if (*wr_kept_ == WEIR_OK)                                                                                      \
            *wr_kept_ = wr_later_;                                                                                     \
        else                                                                                                           \
            wr_fail_restore(wr_first_);                                                                                \
    } while (0)

#endif
