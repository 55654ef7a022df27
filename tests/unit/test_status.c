#include "base/log.h"
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `body` in a child and gives what it wrote to stderr; returns how it ended, as waitpid has it. */
static int run_child(void (*body)(void), char *output, size_t room)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        body();
        _exit(99);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while (length + 1 < room && (got = read(ends[0], output + length, room - 1 - length)) > 0) length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    return ended;
}

static void every_status_has_its_name_and_text(void **state)
{
    (void)state;
#define X(name, value, text)                                                                                           \
    assert_int_equal(name, value);                                                                                     \
    assert_string_equal(weir_status_name(name), #name);                                                                \
    assert_string_equal(weir_status_text(name), text);
    WEIR_STATUS_MAP(X)
#undef X
}

static void an_unknown_status_has_a_name_too(void **state)
{
    (void)state;
    int values[] = { 1, -28, -1000, 0x7fffffff };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_string_equal(weir_status_name((weir_status)values[i]), "WEIR_ERR_UNKNOWN");
        assert_string_equal(weir_status_text((weir_status)values[i]), "unknown status");
    }
}

static void fail_sets_text_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "stream %d is busy", 7), WEIR_ERR_BUSY);
    assert_string_equal(weir_error_text(), "stream 7 is busy");

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.status, WEIR_ERR_BUSY);
    assert_int_equal(error.native_code, 0);
    assert_string_equal(error.library, "");
    assert_string_equal(error.text, "stream 7 is busy");
    assert_int_equal(error.size, sizeof error);
}

static void native_failure_keeps_library_and_code(void **state)
{
    (void)state;
    assert_int_equal(wr_fail_native(WEIR_ERR_DRIVER, "cuda", -700, "cuLaunch: %s", "illegal address"), WEIR_ERR_DRIVER);

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.status, WEIR_ERR_DRIVER);
    assert_int_equal(error.native_code, -700);
    assert_string_equal(error.library, "cuda");
    assert_string_equal(error.text, "cuLaunch: illegal address");
}

static void plain_failure_forgets_an_earlier_native_code(void **state)
{
    (void)state;
    assert_int_equal(wr_fail_native(WEIR_ERR_DRIVER, "cuda", 2, "native"), WEIR_ERR_DRIVER);
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "plain"), WEIR_ERR_BUSY);

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.native_code, 0);
    assert_string_equal(error.library, "");
}

static void overlong_library_name_is_cut(void **state)
{
    (void)state;
    assert_int_equal(wr_fail_native(WEIR_ERR_LIBRARY, "a_library_name_of_more_than_thirty_two_bytes", 1, "x"),
                     WEIR_ERR_LIBRARY);
    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(strlen(error.library), sizeof error.library - 1);
}

static void not_ready_does_not_replace_the_text(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "kept"), WEIR_ERR_BUSY);
    assert_int_equal(wr_fail(WEIR_ERR_NOT_READY, "dropped"), WEIR_ERR_NOT_READY);
    assert_int_equal(wr_fail_native(WEIR_ERR_NOT_READY, "cuda", 600, "dropped"), WEIR_ERR_NOT_READY);

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.status, WEIR_ERR_BUSY);
    assert_string_equal(error.text, "kept");
}

static void prefix_goes_in_front_and_keeps_the_rest(void **state)
{
    (void)state;
    assert_int_equal(wr_fail_native(WEIR_ERR_DRIVER, "hip", 2, "out of memory"), WEIR_ERR_DRIVER);
    wr_fail_prefix("device %d: ", 1);
    wr_fail_prefix("allocating: ");
    assert_string_equal(weir_error_text(), "allocating: device 1: out of memory");

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.native_code, 2);
}

static void arguments_may_be_the_old_text(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "inner"), WEIR_ERR_BUSY);
    assert_int_equal(wr_fail(WEIR_ERR_IO, "outer (%s)", weir_error_text()), WEIR_ERR_IO);
    assert_string_equal(weir_error_text(), "outer (inner)");
}

static void overlong_text_is_cut_and_says_so(void **state)
{
    (void)state;
    char text[6000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(wr_fail(WEIR_ERR_IO, "%s", text), WEIR_ERR_IO);
    size_t length = strlen(weir_error_text());
    assert_int_equal(length, 4095);
    assert_string_equal(weir_error_text() + length - 4, "x...");

    wr_fail_prefix("where: ");
    assert_int_equal(strlen(weir_error_text()), 4095);
    assert_memory_equal(weir_error_text(), "where: xxx", 10);
    assert_string_equal(weir_error_text() + 4091, "x...");

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_string_equal(error.text + sizeof error.text - 5, "x...");
}

static void overlong_text_ends_with_a_whole_character(void **state)
{
    (void)state;
    char text[6001] = "x";
    for (size_t i = 1; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 3);
    assert_int_equal(wr_fail(WEIR_ERR_IO, "%s", text), WEIR_ERR_IO);
    assert_string_equal(weir_error_text() + strlen(weir_error_text()) - 5, "\xC3\xA9...");

    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_string_equal(error.text + strlen(error.text) - 5, "\xC3\xA9...");
}

static void text_has_nothing_that_acts_on_a_terminal(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_OPTION, "\"%s\" is unknown\nsecond line", "\033[2J\xC2\x9B\xFF"),
                     WEIR_ERR_OPTION);
    assert_string_equal(weir_error_text(), "\"?[2J??\" is unknown\nsecond line");
    wr_fail_prefix("%s: ", "\033]0;title\a");
    assert_string_equal(weir_error_text(), "?]0;title?: \"?[2J??\" is unknown\nsecond line");
}

static void text_that_just_fits_is_not_cut(void **state)
{
    (void)state;
    char text[4096];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(wr_fail(WEIR_ERR_IO, "%s", text), WEIR_ERR_IO);
    assert_string_equal(weir_error_text(), text);
}

static void last_error_refuses_null_and_small_structs(void **state)
{
    (void)state;
    assert_int_equal(weir_last_error(NULL), WEIR_ERR_INVALID_ARGUMENT);
    weir_error error = { .size = sizeof error - 1, .status = WEIR_ERR_IO };
    assert_int_equal(weir_last_error(&error), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(error.status, WEIR_ERR_IO);
    assert_non_null(strstr(weir_error_text(), "sizeof(weir_error)"));
}

static void *read_text(void *out)
{
    *(size_t *)out = strlen(weir_error_text());
    if (wr_fail(WEIR_ERR_IO, "theirs") != WEIR_ERR_IO) return NULL;
    return out;
}

static void each_thread_has_its_own_text(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "mine"), WEIR_ERR_BUSY);
    pthread_t threads[4];
    size_t lengths[4] = { 1, 1, 1, 1 };
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_text, &lengths[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
        assert_int_equal(lengths[i], 0);
    }
    assert_string_equal(weir_error_text(), "mine");
}

static weir_status try_two(weir_status first, int *reached)
{
    WR_TRY(first);
    *reached = 1;
    WR_ENSURE(first != WEIR_OK, WEIR_ERR_BUSY, "ensured");
    return WEIR_OK;
}

static void try_and_ensure_leave_early(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(try_two(WEIR_ERR_IO, &reached), WEIR_ERR_IO);
    assert_int_equal(reached, 0);
    assert_int_equal(try_two(WEIR_OK, &reached), WEIR_ERR_BUSY);
    assert_int_equal(reached, 1);
    assert_string_equal(weir_error_text(), "ensured");
}

static void the_first_kept_failure_wins(void **state)
{
    (void)state;
    weir_status kept = WEIR_OK;
    wr_keep_first(&kept, WEIR_OK);
    wr_keep_first(&kept, wr_fail_native(WEIR_ERR_IO, "disk", 7, "the first"));
    wr_keep_first(&kept, wr_fail(WEIR_ERR_BUSY, "a later one"));
    assert_int_equal(kept, WEIR_ERR_IO);
    weir_error error = { .size = sizeof error };
    assert_int_equal(weir_last_error(&error), WEIR_OK);
    assert_int_equal(error.status, WEIR_ERR_IO);
    assert_int_equal(error.native_code, 7);
    assert_string_equal(error.text, "the first");
}

static void clean_up_leaves_the_text_of_the_last_error(void **state)
{
    (void)state;
    assert_int_equal(wr_fail(WEIR_ERR_IO, "told"), WEIR_ERR_IO);
    wr_clean_up(wr_fail(WEIR_ERR_BUSY, "not told"));
    wr_clean_up(WEIR_OK);
    assert_string_equal(weir_error_text(), "told");
}

static void *clean_up_before_any_failure(void *unused)
{
    wr_clean_up(wr_fail(WEIR_ERR_BUSY, "not told"));
    assert_string_equal(weir_error_text(), "");
    assert_int_equal(wr_fail(WEIR_ERR_IO, "told"), WEIR_ERR_IO);
    assert_string_equal(weir_error_text(), "told");
    return unused;
}

static void clean_up_may_fail_first_in_a_thread(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, clean_up_before_any_failure, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static pthread_key_t late_key;
static char text_after_the_thread[64];

/* The second time all other destructors have run once. */
static void look_again(void *first_time)
{
    static char second_time;
    if (first_time != &second_time)
        (void)pthread_setspecific(late_key, &second_time);
    else
        snprintf(text_after_the_thread, sizeof text_after_the_thread, "%s", weir_error_text());
}

static void *clean_up_within_clean_up(void *unused)
{
    (void)!wr_fail(WEIR_ERR_IO, "told");
    const wr_saved_failure outer = wr_fail_save();
    wr_clean_up(wr_fail(WEIR_ERR_BUSY, "not told"));
    wr_fail_restore(outer);
    (void)pthread_setspecific(late_key, text_after_the_thread);
    return unused;
}

static void an_error_goes_with_its_thread_after_clean_up_within_clean_up(void **state)
{
    (void)state;
    pthread_t thread;
    snprintf(text_after_the_thread, sizeof text_after_the_thread, "never looked");
    assert_int_equal(pthread_key_create(&late_key, look_again), 0);
    assert_int_equal(pthread_create(&thread, NULL, clean_up_within_clean_up, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_key_delete(late_key), 0);
    assert_string_equal(text_after_the_thread, weir_status_text(WEIR_ERR_IO)); /* the text is gone */
}

static int times_written;

static void write_number(const void *detail, void *to)
{
    times_written++;
    *(int *)to = *(const int *)detail;
}

static void details_are_written_only_when_they_are_asked_for(void **state)
{
    (void)state;
    int told = 0;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "busy"), WEIR_ERR_BUSY);
    int *detail = wr_fail_detail(sizeof *detail, write_number);
    assert_non_null(detail);
    *detail = 7;
    assert_int_equal(times_written, 0);
    wr_last_detail(&told);
    assert_int_equal(told, 7);
    assert_int_equal(times_written, 1);
}

static void details_go_with_the_next_failure(void **state)
{
    (void)state;
    times_written = 0;
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "busy"), WEIR_ERR_BUSY);
    assert_non_null(wr_fail_detail(sizeof(int), write_number));
    assert_int_equal(wr_fail(WEIR_ERR_BUSY, "busy again"), WEIR_ERR_BUSY);
    wr_last_detail(NULL);
    assert_int_equal(times_written, 0);
}

static void check_a_failed_call(void)
{
    WEIR_CHECK(wr_fail(WEIR_ERR_BUSY, "the reason"));
}

static void check_prints_call_status_and_text_then_exits(void **state)
{
    (void)state;
    char output[2048];
    int ended = run_child(check_a_failed_call, output, sizeof output);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 1);
    assert_non_null(strstr(output, "test_status.c"));
    assert_non_null(strstr(output, "wr_fail(WEIR_ERR_BUSY"));
    assert_non_null(strstr(output, "WEIR_ERR_BUSY (object is in use)\nthe reason\n"));
}

static void check_a_status_without_text(void)
{
    if (wr_fail(WEIR_ERR_BUSY, "an older reason") == WEIR_OK) return;
    WEIR_CHECK(WEIR_ERR_NOT_READY);
}

static void check_does_not_print_the_text_of_another_failure(void **state)
{
    (void)state;
    char output[2048];
    int ended = run_child(check_a_status_without_text, output, sizeof output);
    assert_true(WIFEXITED(ended));
    assert_null(strstr(output, "an older reason"));
}

static void fail_quietly(void)
{
    if (wr_fail(WEIR_ERR_BUSY, "quiet") == WEIR_OK) return;
    wr_log(WR_LOG_ERROR, "quiet too");
}

static void nothing_is_logged_unless_asked(void **state)
{
    (void)state;
    char output[2048];
    run_child(fail_quietly, output, sizeof output);
    assert_string_equal(output, "");
}

static void fail_at_debug(void)
{
    atomic_store(&wr_log_threshold, WR_LOG_DEBUG);
    if (wr_fail(WEIR_ERR_BUSY, "first") == WEIR_OK) return;
    if (wr_fail_native(WEIR_ERR_DRIVER, "cuda", 2, "second") == WEIR_OK) return;
    if (wr_fail(WEIR_ERR_NOT_READY, "not a failure") == WEIR_OK) return;
}

static void debug_log_has_each_failure(void **state)
{
    (void)state;
    char output[2048];
    run_child(fail_at_debug, output, sizeof output);
    assert_string_equal(output, "weir: debug: WEIR_ERR_BUSY: first\n"
                                "weir: debug: WEIR_ERR_DRIVER: cuda error 2: second\n");
}

static void log_at_warn(void)
{
    int evaluated = 0;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    atomic_store(&wr_log_threshold, WR_LOG_WARN);
    wr_log(WR_LOG_INFO, "hidden %d", ++evaluated);
    wr_log(WR_LOG_WARN, "shown %d", evaluated);
    wr_log(WR_LOG_ERROR, "%s", text);
}

static void log_keeps_to_its_threshold_and_cuts_long_lines(void **state)
{
    (void)state;
    char output[4096];
    static const char expected[] = "weir: warn: shown 0\nweir: error: xxx";
    run_child(log_at_warn, output, sizeof output);
    assert_memory_equal(output, expected, sizeof expected - 1);
    assert_int_equal(strlen(output), strlen("weir: warn: shown 0\n") + 1280);
    assert_int_equal(output[strlen(output) - 1], '\n');
}

static void log_wide_characters(void)
{
    char text[3000] = "x";
    for (size_t at = 1; at + 4 < sizeof text; at += 3) memcpy(text + at, "\xE2\x82\xAC", 4);
    atomic_store(&wr_log_threshold, WR_LOG_ERROR);
    wr_log(WR_LOG_ERROR, "%s", text);
}

static void log_cuts_no_character_in_two(void **state)
{
    (void)state;
    char output[4096];
    run_child(log_wide_characters, output, sizeof output);
    const size_t length = strlen(output);
    assert_in_range(length, 1270, 1280);
    assert_string_equal(output + length - 4, "\xE2\x82\xAC\n");
}

static void log_what_a_variable_has(void)
{
    atomic_store(&wr_log_threshold, WR_LOG_ERROR);
    wr_log(WR_LOG_ERROR, "option: \"%s\" is not valid", "\033[2J\r\nweir: error: made up");
}

static void log_shows_what_it_quotes_as_part_of_its_entry(void **state)
{
    (void)state;
    char output[256];
    run_child(log_what_a_variable_has, output, sizeof output);
    assert_string_equal(output, "weir: error: option: \"?[2J?\n  weir: error: made up\" is not valid\n");
}

static void log_to_nobody(void)
{
    int ends[2];
    sigset_t waiting;
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
    close(ends[0]);
    close(ends[1]);
    atomic_store(&wr_log_threshold, WR_LOG_ERROR);
    errno = ERANGE;
    wr_log(WR_LOG_ERROR, "nobody reads this"); /* SIGPIPE would end this program */
    if (errno != ERANGE || sigpending(&waiting) != 0 || sigismember(&waiting, SIGPIPE)) _exit(2);
}

static void a_log_that_nobody_reads_ends_no_program(void **state)
{
    (void)state;
    char output[16];
    assert_int_equal(WEXITSTATUS(run_child(log_to_nobody, output, sizeof output)), 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name_and_text),
        cmocka_unit_test(an_unknown_status_has_a_name_too),
        cmocka_unit_test(fail_sets_text_and_returns_the_status),
        cmocka_unit_test(native_failure_keeps_library_and_code),
        cmocka_unit_test(plain_failure_forgets_an_earlier_native_code),
        cmocka_unit_test(overlong_library_name_is_cut),
        cmocka_unit_test(not_ready_does_not_replace_the_text),
        cmocka_unit_test(prefix_goes_in_front_and_keeps_the_rest),
        cmocka_unit_test(arguments_may_be_the_old_text),
        cmocka_unit_test(overlong_text_is_cut_and_says_so),
        cmocka_unit_test(overlong_text_ends_with_a_whole_character),
        cmocka_unit_test(text_has_nothing_that_acts_on_a_terminal),
        cmocka_unit_test(text_that_just_fits_is_not_cut),
        cmocka_unit_test(last_error_refuses_null_and_small_structs),
        cmocka_unit_test(each_thread_has_its_own_text),
        cmocka_unit_test(try_and_ensure_leave_early),
        cmocka_unit_test(the_first_kept_failure_wins),
        cmocka_unit_test(clean_up_leaves_the_text_of_the_last_error),
        cmocka_unit_test(clean_up_may_fail_first_in_a_thread),
        cmocka_unit_test(an_error_goes_with_its_thread_after_clean_up_within_clean_up),
        cmocka_unit_test(details_are_written_only_when_they_are_asked_for),
        cmocka_unit_test(details_go_with_the_next_failure),
        cmocka_unit_test(check_prints_call_status_and_text_then_exits),
        cmocka_unit_test(check_does_not_print_the_text_of_another_failure),
        cmocka_unit_test(nothing_is_logged_unless_asked),
        cmocka_unit_test(debug_log_has_each_failure),
        cmocka_unit_test(log_keeps_to_its_threshold_and_cuts_long_lines),
        cmocka_unit_test(log_cuts_no_character_in_two),
        cmocka_unit_test(log_shows_what_it_quotes_as_part_of_its_entry),
        cmocka_unit_test(a_log_that_nobody_reads_ends_no_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
