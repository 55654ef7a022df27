#include "contract/contract.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#define SHARED_BYTES (2 * caps[0].granularity)

extern char **environ;

/* Every test starts here. */
static void need_sharing(void)
{
    if (b->vm_create_exportable == NULL || caps[0].granularity == 0) skip();
}

/* A chunk and where it is mapped. */
typedef struct mapping {
    weir_chunk chunk;
    char *base;
} mapping;

static mapping map_chunk(weir_chunk chunk)
{
    void *base;
    ok(b->vm_reserve(0, SHARED_BYTES, 0, &base));
    ok(b->vm_map(0, base, SHARED_BYTES, chunk));
    ok(b->vm_access(0, base, SHARED_BYTES, 0));
    return (mapping){ chunk, base };
}

static mapping make(void)
{
    weir_chunk chunk;
    ok(b->vm_create_exportable(0, SHARED_BYTES, &chunk));
    return map_chunk(chunk);
}

static int export(const mapping *from)
{
    int descriptor = -1;
    ok(b->vm_export(0, from->chunk, &descriptor));
    assert_true(descriptor >= 0);
    return descriptor;
}

static mapping import(int descriptor)
{
    weir_chunk chunk;
    ok(b->vm_import(0, descriptor, SHARED_BYTES, &chunk));
    return map_chunk(chunk);
}

static void end(const mapping *m)
{
    ok(b->vm_unmap(0, m->base, SHARED_BYTES));
    ok(b->vm_destroy(0, m->chunk, SHARED_BYTES));
    ok(b->vm_release(0, m->base, SHARED_BYTES));
}

static void both_sides_see_each_others_writes(void **state)
{
    (void)state;
    need_sharing();
    mapping mine = make();
    int descriptor = export(&mine);
    mapping theirs = import(descriptor);
    close(descriptor);
    fill_now(0, mine.base, 0x11, SHARED_BYTES);
    assert_int_equal(byte_at(0, theirs.base, SHARED_BYTES - 1), 0x11);
    fill_now(0, theirs.base, 0x22, SHARED_BYTES);
    assert_int_equal(byte_at(0, mine.base, 0), 0x22);
    end(&theirs);
    assert_int_equal(byte_at(0, mine.base, 0), 0x22);
    end(&mine);
}

static void imported_memory_outlives_its_maker(void **state)
{
    (void)state;
    need_sharing();
    mapping mine = make();
    fill_now(0, mine.base, 0x33, SHARED_BYTES);
    int descriptor = export(&mine);
    mapping theirs = import(descriptor);
    end(&mine);
    assert_int_equal(byte_at(0, theirs.base, SHARED_BYTES - 1), 0x33);
    close(descriptor);
    assert_int_equal(byte_at(0, theirs.base, 0), 0x33);
    end(&theirs);
}

static void exported_memory_can_be_imported_more_than_once(void **state)
{
    (void)state;
    need_sharing();
    mapping mine = make();
    int one = export(&mine), two = export(&mine);
    assert_int_not_equal(one, two);
    mapping first = import(one), second = import(two);
    close(one);
    close(two);
    fill_now(0, first.base, 0x44, SHARED_BYTES);
    assert_int_equal(byte_at(0, second.base, 9), 0x44);
    end(&first);
    end(&second);
    end(&mine);
}

static void exportable_chunk_counts_until_destroyed(void **state)
{
    (void)state;
    need_sharing();
    uint64_t before = free_memory(0);
    mapping mine = make();
    assert_true(free_memory(0) <= before - SHARED_BYTES);
    end(&mine);
    assert_int_equal(free_memory(0), before);
}

static void importing_takes_no_further_memory(void **state)
{
    (void)state;
    need_sharing();
    mapping mine = make();
    uint64_t before = free_memory(0);
    int descriptor = export(&mine);
    mapping theirs = import(descriptor);
    close(descriptor);
    assert_int_equal(free_memory(0), before);
    end(&theirs);
    assert_int_equal(free_memory(0), before);
    end(&mine);
}

static void plain_chunk_is_exported_or_refused(void **state)
{
    (void)state;
    need_sharing();
    int descriptor = -5;
    weir_chunk chunk;
    ok(b->vm_create(0, SHARED_BYTES, &chunk));
    if (b->vm_export(0, chunk, &descriptor) == WEIR_OK) {
        mapping theirs = import(descriptor);
        assert_int_equal(close(descriptor), 0);
        end(&theirs);
    } else {
        refused(b->vm_export(0, chunk, &descriptor));
        assert_int_equal(b->vm_export(0, chunk, &descriptor), WEIR_ERR_NOT_SUPPORTED);
        assert_int_equal(descriptor, -5);
    }
    ok(b->vm_destroy(0, chunk, SHARED_BYTES));
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    need_sharing();
    weir_chunk chunk = 123;
    refused(b->vm_create_exportable(0, 0, &chunk));
    refused(b->vm_create_exportable(0, caps[0].granularity / 2, &chunk));
    assert_int_equal(b->vm_create_exportable(0, (caps[0].total_memory / SHARED_BYTES + 1) * SHARED_BYTES, &chunk),
                     WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(chunk, 123);
}

static void other_files_are_not_imported(void **state)
{
    (void)state;
    need_sharing();
    weir_chunk chunk = 123;
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    refused(b->vm_import(0, file, SHARED_BYTES, &chunk));
    close(file);
    refused(b->vm_import(0, file, SHARED_BYTES, &chunk)); /* the descriptor is closed */
    assert_int_equal(chunk, 123);
}

/* ---- another process --------------------------------------------------------------------------------------------- */

/* The descriptor's number in the other process, which is this program again: a driver does not survive fork(). */
#define GIVEN 100
#define THE_OTHER "the other process"

/* In the other process. */
static void given_memory_is_imported(void **state)
{
    (void)state;
    mapping given = import(GIVEN);
    assert_int_equal(byte_at(0, given.base, 0), 0x55);
    assert_int_equal(byte_at(0, given.base, SHARED_BYTES - 1), 0x55);
    fill_now(0, given.base, 0x66, SHARED_BYTES);
    end(&given);
}

static int run_the_other(int descriptor)
{
    int status;
    pid_t child;
    char self[] = "/proc/self/exe", mode[] = THE_OTHER;
    char *const arguments[] = { self, mode, NULL };
    posix_spawn_file_actions_t actions;
    fflush(NULL);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, descriptor, GIVEN);
    assert_int_equal(posix_spawn(&child, self, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void another_process_sees_and_writes_it(void **state)
{
    (void)state;
    need_sharing();
    mapping mine = make();
    fill_now(0, mine.base, 0x55, SHARED_BYTES);
    int descriptor = export(&mine);
    assert_int_equal(run_the_other(descriptor), 0);
    close(descriptor);
    assert_int_equal(byte_at(0, mine.base, 0), 0x66);
    assert_int_equal(byte_at(0, mine.base, SHARED_BYTES - 1), 0x66);
    end(&mine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_see_each_others_writes),
        cmocka_unit_test(imported_memory_outlives_its_maker),
        cmocka_unit_test(exported_memory_can_be_imported_more_than_once),
        cmocka_unit_test(exportable_chunk_counts_until_destroyed),
        cmocka_unit_test(importing_takes_no_further_memory),
        cmocka_unit_test(plain_chunk_is_exported_or_refused),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(other_files_are_not_imported),
        cmocka_unit_test(another_process_sees_and_writes_it),
    };
    const struct CMUnitTest the_other[] = { cmocka_unit_test(given_memory_is_imported) };
    if (argc == 2 && strcmp(argv[1], THE_OTHER) == 0)
        return cmocka_run_group_tests(the_other, contract_open, contract_close);
    return cmocka_run_group_tests(tests, contract_open, contract_close);
}
