#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output/file.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder of its own, with nothing in it. */
static char folder[] = "/tmp/weir-output.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

/* Fails when something is still in it. */
static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* How many files there are, and the path of the last one. */
static int find_files(char path[PATH_MAX])
{
    int count = 0;
    DIR *open = opendir(folder);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));) {
        if (entry->d_name[0] == '.' && entry->d_name[1] != 'w') continue;
        snprintf(path, PATH_MAX, "%s/%s", folder, entry->d_name);
        count++;
    }
    closedir(open);
    return count;
}

static int files(void)
{
    char path[PATH_MAX];
    return find_files(path);
}

/* A child that begins a file and ends as `end` says: how it ended. */
static int child_that(void (*end)(output_file *file))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/page", folder);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        output_file file;
        if (!output_open("test", path, &file)) _exit(2);
        if (files() != 1) _exit(3);
        end(&file);
        _exit(4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void exits(output_file *file)
{
    (void)file;
    exit(EXIT_FAILURE);
}

static int sent; /* the signal that a child is ended by */

static void is_told_to_end(output_file *file)
{
    static const struct rlimit no_core;
    (void)file;
    setrlimit(RLIMIT_CORE, &no_core);
    raise(sent);
}

static void discards(output_file *file)
{
    output_discard(file);
    exit(EXIT_FAILURE);
}

static void exit_leaves_nothing(void **state)
{
    (void)state;
    int status = child_that(exits);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
    assert_int_equal(files(), 0);
}

static void a_signal_leaves_nothing(void **state)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU };
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sent = signals[i];
        signal(sent, SIG_DFL); /* it may be ignored where tests run */
        int status = child_that(is_told_to_end);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sent);
        assert_int_equal(files(), 0);
    }
}

/* As nohup has it. The child goes on to its last line. */
static void a_signal_that_was_ignored_stays_ignored(void **state)
{
    static const int signals[] = { SIGHUP, SIGINT };
    char path[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sent = signals[i];
        void (*before)(int) = signal(sent, SIG_IGN);
        int status = child_that(is_told_to_end);
        signal(sent, before);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
        assert_int_equal(find_files(path), 1);
        assert_int_equal(unlink(path), 0);
    }
}

static void a_discarded_file_is_gone(void **state)
{
    (void)state;
    int status = child_that(discards);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
    assert_int_equal(files(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_leaves_nothing),
        cmocka_unit_test(a_signal_leaves_nothing),
        cmocka_unit_test(a_signal_that_was_ignored_stays_ignored),
        cmocka_unit_test(a_discarded_file_is_gone),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
