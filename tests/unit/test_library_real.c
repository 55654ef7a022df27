/*
 * NVIDIA's real libraries, where a toolkit is installed, one child process per kind: they load, report their version,
 * and without a GPU refuse to create with a code that has an error text. With a GPU the create succeeds and the handle
 * works.
 */
#include "unit/library_support.h"

#include <sys/wait.h>
#include <unistd.h>

static bool find_file(const wr_library_row *row, char file[512])
{
    static const char *const folders[] = { "/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu" };
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++)
        for (const char *const *soname = row->sonames; *soname != NULL; soname++) {
            snprintf(file, 512, "%s/%s", folders[f], *soname);
            if (access(file, R_OK) == 0) return true;
        }
    return false;
}

/* 0, or the line that found something wrong. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s: line %d: %s; %s\n", row->name, __LINE__, #condition, weir_error_text());              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int use(const wr_library_row *row)
{
    wr_kind *kind;
    int mark;
    void *handle = &mark;
    char number[16];
    weir_handle_kind_info info = { .size = sizeof info };
    REQUIRE(wr_library_kind(row, &kind) == WEIR_OK);
    REQUIRE(kind->load(kind->self) == WEIR_OK);
    kind->describe(kind->self, &info);
    REQUIRE(info.version[0] != '\0');
    int code = kind->create(kind->self, 0, &gfx950, &handle);
    fprintf(stderr, "%s %s: create: %s\n", kind->name, info.version, kind->error_text(kind->self, code));
    if (code != 0) {
        REQUIRE(handle == &mark);
        REQUIRE(code > 0);
        snprintf(number, sizeof number, "%d ", code);
        const char *text = kind->error_text(kind->self, code);
        REQUIRE(strncmp(text, number, strlen(number)) == 0);
        REQUIRE(strstr(text, "unknown code") == NULL);
        return 0;
    }
    REQUIRE(handle != NULL && handle != &mark);
    REQUIRE(kind->bind == NULL || kind->bind(kind->self, handle, NULL) == 0);
    REQUIRE(kind->reset == NULL || kind->reset(kind->self, handle) == 0);
    REQUIRE(kind->destroy(kind->self, handle) == 0);
    return 0;
}

static void a_real_library_works_or_says_why_not(void **state)
{
    const wr_library_row *row = *state;
    char file[512];
    int status = 0;
    if (!find_file(row, file)) {
        print_message("%s: not installed\n", row->name);
        skip();
    }
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        point_to(row, file);
        _exit(use(row)); /* what the libraries do at exit is not tested */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("%s: ended by signal %d", row->name, WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    struct CMUnitTest tests[16];
    if (wr_cuda_kind_count > sizeof tests / sizeof tests[0]) return 1;
    for (size_t i = 0; i < wr_cuda_kind_count; i++)
        tests[i] = (struct CMUnitTest){ .name = wr_cuda_kinds[i].name,
                                        .test_func = a_real_library_works_or_says_why_not,
                                        .initial_state = (void *)&wr_cuda_kinds[i] };
    return _cmocka_run_group_tests("real libraries", tests, wr_cuda_kind_count, NULL, NULL);
}
