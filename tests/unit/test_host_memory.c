#include "unit/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define GRANULE (2 * MIB)

static sigjmp_buf back;

static void jump_back(int number)
{
    siglongjmp(back, number);
}

/* Whether reading a byte raises SIGSEGV. */
static bool faults(const volatile char *byte)
{
    struct sigaction action = { .sa_handler = jump_back }, before;
    sigaction(SIGSEGV, &action, &before);
    volatile bool fault = sigsetjmp(back, 1) != 0;
    if (!fault) (void)*byte;
    sigaction(SIGSEGV, &before, NULL);
    return fault;
}

static void equal_calls_give_equal_offsets(void **state)
{
    (void)state;
    char *one[10], *two[10];
    for (int i = 0; i < 10; i++) one[i] = new_segment(0, (size_t)(i + 1) * GRANULE);
    for (int i = 0; i < 10; i++) two[i] = new_segment(1, (size_t)(i + 1) * GRANULE);
    for (int i = 0; i < 10; i++) assert_int_equal(one[i] - one[0], two[i] - two[0]);
}

static void lowest_free_place_is_used_again(void **state)
{
    (void)state;
    char *one = new_segment(0, GRANULE), *two = new_segment(0, GRANULE);
    ok(b->segment_free(0, one, GRANULE));
    assert_ptr_equal(new_segment(0, GRANULE), one);
    assert_ptr_equal(new_segment(0, GRANULE), two + GRANULE);
}

static void new_segments_are_zero(void **state)
{
    (void)state;
    char *base = new_segment(0, GRANULE);
    memset(base, 7, GRANULE);
    ok(b->segment_free(0, base, GRANULE));
    assert_ptr_equal(new_segment(0, GRANULE), base);
    assert_int_equal(base[12345], 0);
}

static void freed_memory_cannot_be_touched(void **state)
{
    (void)state;
    char *base = new_segment(0, GRANULE);
    assert_false(faults(base));
    ok(b->segment_free(0, base, GRANULE));
    assert_true(faults(base));
}

static void wrong_frees_say_why(void **state)
{
    (void)state;
    char *base = new_segment(0, 2 * GRANULE);
    assert_int_equal(b->segment_free(0, base, GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->segment_free(0, base + GRANULE, GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(b->segment_free(1, base, 2 * GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(b->segment_free(0, NULL, GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(b->pinned_free(0, base, 2 * GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    ok(b->segment_free(0, base, 2 * GRANULE));
    assert_int_equal(b->segment_free(0, base, 2 * GRANULE), WEIR_ERR_UNKNOWN_POINTER);
}

static void capacity_is_exact(void **state)
{
    (void)state;
    void *base, *more;
    base = new_segment(0, HOST_MEMORY);
    assert_int_equal(b->segment_alloc(0, 1, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "256.00 MiB"));
    ok(b->segment_free(0, base, HOST_MEMORY));
    new_segment(0, HOST_MEMORY);
}

static void scripted_places_are_used_in_turn(void **state)
{
    (void)state;
    const weir_host_place places[] = { { 100 * GRANULE, GRANULE }, { 7 * GRANULE, 2 * GRANULE } };
    char *start = new_segment(0, 4096);
    ok(weir_host_place_segments(0, places, 2));
    assert_ptr_equal(new_segment(0, GRANULE), start + 100 * GRANULE);
    assert_ptr_equal(new_segment(0, 2 * GRANULE), start + 7 * GRANULE);
    assert_ptr_equal(new_segment(0, GRANULE), start + GRANULE);
}

static void other_size_ends_the_script(void **state)
{
    (void)state;
    const weir_host_place places[] = { { 100 * GRANULE, GRANULE }, { 200 * GRANULE, GRANULE } };
    char *start = new_segment(0, 4096);
    ok(weir_host_place_segments(0, places, 2));
    assert_ptr_equal(new_segment(0, 2 * GRANULE), start + GRANULE);
    assert_ptr_equal(new_segment(0, GRANULE), start + 3 * GRANULE);
}

static void taken_place_ends_the_script(void **state)
{
    (void)state;
    char *start = new_segment(0, GRANULE);
    const weir_host_place places[] = { { 0, GRANULE }, { 200 * GRANULE, GRANULE } };
    ok(weir_host_place_segments(0, places, 2));
    assert_ptr_equal(new_segment(0, GRANULE), start + GRANULE);
    assert_ptr_equal(new_segment(0, GRANULE), start + 2 * GRANULE);
}

static void failed_allocation_keeps_the_script(void **state)
{
    (void)state;
    const weir_host_place places[] = { { 100 * GRANULE, GRANULE } };
    char *start = new_segment(0, HOST_MEMORY - GRANULE + 4096);
    void *base;
    ok(weir_host_place_segments(0, places, 1));
    assert_int_equal(b->segment_alloc(0, GRANULE, &base), WEIR_ERR_OUT_OF_MEMORY);
    ok(b->segment_free(0, start, HOST_MEMORY - GRANULE + 4096));
    assert_ptr_equal(new_segment(0, GRANULE), start + 100 * GRANULE);
}

static void places_outside_the_range_are_refused(void **state)
{
    (void)state;
    uint64_t range;
    ok(weir_host_address_range(0, &range));
    assert_true(range >= 4 * HOST_MEMORY);
    const weir_host_place far = { range + GRANULE, GRANULE }, odd = { 512, GRANULE },
                          last = { range - GRANULE, GRANULE };
    assert_int_equal(weir_host_place_segments(0, &far, 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_place_segments(0, &odd, 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_place_segments(0, NULL, 1), WEIR_ERR_INVALID_ARGUMENT);
    ok(weir_host_place_segments(0, &last, 1));
    char *base = new_segment(0, GRANULE);
    base[GRANULE - 1] = 1;
}

static void many_segments_stay_cheap(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    static void *base[COUNT];
    for (int i = 0; i < COUNT; i++) base[i] = new_segment(0, 8192);
    for (int i = 0; i < COUNT; i += 2) ok(b->segment_free(0, base[i], 8192));
    for (int round = 0; round < 20; round++) { /* only a tree makes this fast, because every hole is too small */
        void *large = new_segment(0, 16384);
        ok(b->segment_free(0, large, 16384));
    }
    for (int i = 1; i < COUNT; i += 2) ok(b->segment_free(0, base[i], 8192));
    assert_ptr_equal(new_segment(0, HOST_MEMORY), base[0]);
}

static void mapped_but_not_accessible_memory_cannot_be_touched(void **state)
{
    (void)state;
    void *reserved;
    weir_chunk chunk;
    ok(b->vm_reserve(0, 2 * GRANULE, 0, &reserved));
    char *base = reserved;
    ok(b->vm_create(0, GRANULE, &chunk));
    assert_true(faults(base));
    ok(b->vm_map(0, base, GRANULE, chunk));
    assert_true(faults(base));
    ok(b->vm_access(0, base, GRANULE, 1));
    assert_false(faults(base));
    assert_true(faults(base + GRANULE));
    ok(b->vm_unmap(0, base, GRANULE));
    assert_true(faults(base));
}

static void virtual_memory_misuse_says_why(void **state)
{
    (void)state;
    void *reserved;
    weir_chunk chunk;
    ok(b->vm_reserve(0, 4 * GRANULE, 0, &reserved));
    char *base = reserved;
    ok(b->vm_create(0, 2 * GRANULE, &chunk));
    assert_int_equal(b->vm_map(0, base, GRANULE, chunk), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_map(0, base + 3 * GRANULE, 2 * GRANULE, chunk), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_map(0, base + 512, 2 * GRANULE, chunk), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_map(0, base, 2 * GRANULE, chunk + 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_map(1, base, 2 * GRANULE, chunk), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_destroy(0, chunk, GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    ok(b->vm_map(0, base, 2 * GRANULE, chunk));
    assert_int_equal(b->vm_map(0, base + GRANULE, 2 * GRANULE, chunk), WEIR_ERR_BUSY);
    assert_int_equal(b->vm_unmap(0, base, GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_unmap(0, base, 4 * GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_access(0, base + GRANULE, GRANULE, 0), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_access(0, base, 2 * GRANULE, 5), WEIR_ERR_NO_DEVICE);
    assert_int_equal(b->vm_release(0, base, 4 * GRANULE), WEIR_ERR_BUSY);
    assert_int_equal(b->vm_release(0, base, 2 * GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_release(0, base + GRANULE, 3 * GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->segment_free(0, base, 4 * GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    ok(b->vm_destroy(0, chunk, 2 * GRANULE));
    assert_int_equal(b->vm_destroy(0, chunk, 2 * GRANULE), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_map(0, base + 2 * GRANULE, 2 * GRANULE, chunk), WEIR_ERR_INVALID_ARGUMENT);
    ok(b->vm_unmap(0, base, 2 * GRANULE));
    ok(b->vm_release(0, base, 4 * GRANULE));
    assert_int_equal(b->vm_release(0, base, 4 * GRANULE), WEIR_ERR_INVALID_ARGUMENT);
}

static void one_unmap_takes_several_maps(void **state)
{
    (void)state;
    void *reserved;
    weir_chunk one, two;
    uint64_t before, after, total;
    ok(b->device_memory(0, &before, &total));
    ok(b->vm_reserve(0, 3 * GRANULE, 0, &reserved));
    char *base = reserved;
    ok(b->vm_create(0, GRANULE, &one));
    ok(b->vm_create(0, 2 * GRANULE, &two));
    ok(b->vm_map(0, base, GRANULE, one));
    ok(b->vm_map(0, base + GRANULE, 2 * GRANULE, two));
    ok(b->vm_destroy(0, one, GRANULE));
    ok(b->vm_destroy(0, two, 2 * GRANULE));
    ok(b->vm_unmap(0, base, 3 * GRANULE));
    ok(b->device_memory(0, &after, &total));
    assert_int_equal(before, after);
}

static void destroyed_chunk_gives_its_pages_back(void **state)
{
    (void)state;
    void *reserved;
    weir_chunk chunk;
    ok(b->vm_reserve(0, GRANULE, 0, &reserved));
    char *base = reserved;
    for (int i = 0; i < 2; i++) { /* the second chunk has the first one's place in the file */
        ok(b->vm_create(0, GRANULE, &chunk));
        ok(b->vm_map(0, base, GRANULE, chunk));
        ok(b->vm_access(0, base, GRANULE, 0));
        assert_int_equal(base[99], 0);
        memset(base, 0x77, GRANULE);
        ok(b->vm_unmap(0, base, GRANULE));
        ok(b->vm_destroy(0, chunk, GRANULE));
    }
}

static void hint_is_followed_when_it_can_be(void **state)
{
    (void)state;
    void *one, *two, *three;
    ok(b->vm_reserve(0, GRANULE, 0, &one));
    uint64_t wish = (uint64_t)(uintptr_t)one + 50 * GRANULE;
    ok(b->vm_reserve(0, GRANULE, wish, &two));
    assert_int_equal((uintptr_t)two, wish);
    ok(b->vm_reserve(0, GRANULE, wish, &three));
    assert_int_not_equal((uintptr_t)three, wish);
    ok(b->vm_reserve(0, GRANULE, 12345, &three));
    ok(b->vm_reserve(0, GRANULE, GRANULE, &three));
}

/* ---- managed and registered memory ------------------------------------------------------------------------------- */

static void *new_managed(size_t bytes)
{
    void *base;
    ok(b->managed_alloc(0, bytes, &base));
    return base;
}

static void managed_memory_counts_against_the_device(void **state)
{
    (void)state;
    void *managed = new_managed(HOST_MEMORY - GRANULE), *more;
    assert_int_equal(b->segment_alloc(0, 2 * GRANULE, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(b->managed_alloc(0, 2 * GRANULE, &more), WEIR_ERR_OUT_OF_MEMORY);
    ok(b->managed_free(0, managed, HOST_MEMORY - GRANULE));
    new_segment(0, HOST_MEMORY);
}

static void managed_memory_is_no_segment(void **state)
{
    (void)state;
    void *managed = new_managed(GRANULE), *segment = new_segment(0, GRANULE);
    assert_int_equal(b->segment_free(0, managed, GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(b->managed_free(0, segment, GRANULE), WEIR_ERR_UNKNOWN_POINTER);
    ok(b->managed_free(0, managed, GRANULE));
    ok(b->segment_free(0, segment, GRANULE));
}

static void managed_memory_uses_no_scripted_place(void **state)
{
    (void)state;
    const weir_host_place place = { 100 * GRANULE, GRANULE };
    char *start = new_segment(0, GRANULE);
    ok(weir_host_place_segments(0, &place, 1));
    assert_ptr_equal(new_managed(GRANULE), start + GRANULE);
    assert_ptr_equal(new_segment(0, GRANULE), start + 100 * GRANULE);
}

static char pages[8 * 4096] __attribute__((aligned(4096)));

static void wrong_registrations_say_why(void **state)
{
    (void)state;
    ok(b->host_register(0, pages + 4096, 8192));
    assert_int_equal(b->host_register(1, pages, 8192), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(1, pages + 8192, 8192), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(1, pages, sizeof pages), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_register(0, pages, SIZE_MAX & ~(size_t)4095), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "whole number of pages"));
    assert_int_equal(b->host_unregister(0, pages + 4096, 4096), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->host_unregister(0, pages + 8192, 4096), WEIR_ERR_UNKNOWN_POINTER);
    ok(b->host_unregister(0, pages + 4096, 8192));
    assert_int_equal(b->host_unregister(0, pages + 4096, 8192), WEIR_ERR_UNKNOWN_POINTER);
}

static void closing_a_device_ends_its_registrations(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->host_register(0, pages, 4096));
    ok(b->host_register(1, pages + 4096, 4096));
    ok(b->device_close(0));
    ok(b->host_register(1, pages, 4096));
    assert_int_equal(b->host_register(1, pages + 4096, 4096), WEIR_ERR_INVALID_ARGUMENT);
    ok(b->device_open(0, &caps));
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

static weir_chunk new_shared(int *descriptor)
{
    weir_chunk chunk;
    ok(b->vm_create_exportable(0, GRANULE, &chunk));
    ok(b->vm_export(0, chunk, descriptor));
    return chunk;
}

static void wrong_imports_say_why(void **state)
{
    (void)state;
    int descriptor, pipes[2], file = memfd_create("another", MFD_CLOEXEC);
    weir_chunk chunk = new_shared(&descriptor), imported = 5;
    assert_int_equal(b->vm_import(0, descriptor, 2 * GRANULE, &imported), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "2097152"));
    assert_int_equal(b->vm_import(0, descriptor, GRANULE + 512, &imported), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(ftruncate(file, GRANULE), 0);
    assert_int_equal(b->vm_import(0, file, GRANULE, &imported), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(b->vm_import(0, pipes[0], GRANULE, &imported), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_export(0, chunk + 1, &file), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(imported, 5);
    close(pipes[0]);
    close(pipes[1]);
    close(descriptor);
    close(file);
}

static void a_descriptor_that_only_reads_is_not_imported(void **state)
{
    (void)state;
    int descriptor;
    char name[32];
    weir_chunk imported = 5;
    new_shared(&descriptor);
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    const int reads = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(reads >= 0);
    assert_int_equal(b->vm_import(0, reads, GRANULE, &imported), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(imported, 5);
    close(reads);
    close(descriptor);
}

/* As memfd_create makes it where vm.memfd_noexec is 1. */
static void a_file_that_cannot_be_executed_is_imported(void **state)
{
    (void)state;
    const unsigned noexec_seal = 8;
    weir_chunk imported;
    const int file = memfd_create("weir-host-memory", MFD_CLOEXEC | noexec_seal);
    if (file < 0) skip(); /* before Linux 6.3 */
    assert_int_equal(ftruncate(file, GRANULE), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    ok(b->vm_import(0, file, GRANULE, &imported));
    ok(b->vm_destroy(0, imported, GRANULE));
    close(file);
}

static void shared_memory_cannot_be_resized(void **state)
{
    (void)state;
    int descriptor;
    new_shared(&descriptor);
    assert_int_equal(ftruncate(descriptor, 4096), -1);
    assert_int_equal(ftruncate(descriptor, 2 * GRANULE), -1);
    close(descriptor);
}

static void descriptors_do_not_pass_to_other_programs(void **state)
{
    (void)state;
    int descriptor;
    new_shared(&descriptor);
    assert_int_equal(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
    close(descriptor);
}

static void files_of_chunks_are_closed(void **state)
{
    (void)state;
    int descriptor, before = open_files();
    weir_chunk chunk = new_shared(&descriptor), imported;
    ok(b->vm_import(1, descriptor, GRANULE, &imported));
    ok(b->vm_destroy(0, chunk, GRANULE));
    ok(b->vm_destroy(1, imported, GRANULE));
    assert_int_equal(open_files(), before + 3); /* the two devices' own, and ours */
    new_shared(&descriptor);
    ok(b->vm_import(1, descriptor, GRANULE, &imported));
    host_close(NULL);
    assert_int_equal(open_files(), before + 2); /* ours */
    host_open(NULL);
}

/* What a program writes to an error output that it has closed must not land in memory. */
static void memory_takes_no_standard_descriptor(void **state)
{
    (void)state;
    const int error_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    weir_chunk chunk, shared, imported;
    int descriptor;
    close(STDERR_FILENO);
    const weir_status created = b->vm_create(0, GRANULE, &chunk);
    const weir_status exportable = b->vm_create_exportable(0, GRANULE, &shared);
    const bool taken_by_own = fcntl(STDERR_FILENO, F_GETFD) >= 0;
    const weir_status exported = b->vm_export(0, shared, &descriptor);
    if (exported == WEIR_OK && descriptor == STDERR_FILENO) { /* the caller's, who asked for it */
        descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
        close(STDERR_FILENO);
    }
    const weir_status import = b->vm_import(1, descriptor, GRANULE, &imported);
    const bool taken_by_import = fcntl(STDERR_FILENO, F_GETFD) >= 0;
    dup2(error_output, STDERR_FILENO);
    close(error_output);
    close(descriptor);
    ok(created);
    ok(exportable);
    ok(exported);
    ok(import);
    assert_false(taken_by_own);
    assert_false(taken_by_import);
}

static void running_out_of_descriptors_is_reported(void **state)
{
    (void)state;
    int descriptor, other = -5;
    uint64_t before, after, total;
    struct rlimit limit, none;
    weir_chunk chunk = new_shared(&descriptor), imported = 5;
    ok(b->device_memory(0, &before, &total));
    getrlimit(RLIMIT_NOFILE, &limit);
    none = (struct rlimit){ 3, limit.rlim_max };
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(b->vm_export(0, chunk, &other), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(b->vm_import(0, descriptor, GRANULE, &imported), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(b->vm_create_exportable(0, GRANULE, &imported), WEIR_ERR_OUT_OF_HOST_MEMORY);
    setrlimit(RLIMIT_NOFILE, &limit);
    ok(b->device_memory(0, &after, &total));
    assert_int_equal(before, after);
    assert_int_equal(imported, 5);
    assert_int_equal(other, -5);
    close(descriptor);
}

/* Records run out in every possible place; nothing may leak or change. */
static weir_status use_everything(void)
{
    void *base = NULL, *stream = NULL, *event = NULL, *graph = NULL, *exec = NULL, *reserved = NULL, *managed;
    weir_chunk chunk;
    WR_TRY(b->segment_alloc(0, GRANULE, &base));
    WR_TRY(b->stream_create(0, 0, &stream));
    WR_TRY(b->event_create(0, &event));
    WR_TRY(b->vm_reserve(0, 4 * GRANULE, 0, &reserved));
    WR_TRY(b->vm_create(0, GRANULE, &chunk));
    WR_TRY(b->vm_map(0, (char *)reserved + GRANULE, GRANULE, chunk));
    WR_TRY(b->vm_create_exportable(0, GRANULE, &chunk));
    WR_TRY(b->managed_alloc(0, GRANULE, &managed));
    WR_TRY(b->host_register(0, pages, sizeof pages));
    WR_TRY(weir_host_stream_hold(0, stream));
    WR_TRY(b->fill(0, stream, base, 1, 1));
    WR_TRY(b->event_record(0, event, stream));
    WR_TRY(b->stream_wait(0, NULL, event));
    WR_TRY(weir_host_stream_release(0, stream));
    WR_TRY(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    WR_TRY(b->fill(0, stream, base, 2, 1));
    WR_TRY(b->capture_end(0, stream, &graph));
    WR_TRY(b->graph_instantiate(0, graph, &exec));
    WR_TRY(weir_host_stream_hold(0, stream));
    return b->graph_launch(0, exec, stream);
}

static void running_out_of_records_leaks_nothing(void **state)
{
    (void)state;
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    for (uint64_t nth = 1; status != WEIR_OK; nth++) {
        assert_true(nth < 100);
        wr_meta_fail_nth(nth);
        status = use_everything();
        wr_meta_fail_nth(0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        host_close(NULL); /* which checks that no record is left */
        host_open(NULL);
    }
}

static void large_devices_fit(void **state)
{
    (void)state;
    const weir_backend *backend;
    weir_device_caps caps;
    host_close(NULL);
    weir_backend_config config = { .size = sizeof config, .host_devices = 2, .host_memory = (uint64_t)80 << 30 };
    ok(wr_backend_open("host", &config, &backend));
    for (int i = 0; i < 2; i++) {
        void *base;
        ok(backend->device_open(i, &caps));
        ok(backend->segment_alloc(i, (uint64_t)80 << 30, &base));
        ((char *)base)[((uint64_t)80 << 30) - 1] = 1;
        ok(backend->device_close(i));
    }
    ok(wr_backend_close(backend));
    host_open(NULL);
}

static void reopen_devices(bool contents)
{
    weir_device_caps caps;
    for (int i = 0; i < 2; i++) ok(b->device_close(i));
    if (!contents) ok(weir_host_omit_contents());
    for (int i = 0; i < 2; i++) ok(b->device_open(i, &caps));
}

static void a_limit_on_the_size_of_files_is_reported(void **state)
{
    (void)state;
    weir_chunk chunk = 5;
    struct rlimit limit, few;
    getrlimit(RLIMIT_FSIZE, &limit);
    few = (struct rlimit){ GRANULE, limit.rlim_max };
    setrlimit(RLIMIT_FSIZE, &few); /* SIGXFSZ would end this program */
    const weir_status status = b->vm_create(0, GRANULE, &chunk);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "ulimit -f"));
    assert_int_equal(chunk, 5);
    reopen_devices(false);
    setrlimit(RLIMIT_FSIZE, &few);
    const weir_status without_contents = b->vm_create(0, GRANULE, &chunk);
    setrlimit(RLIMIT_FSIZE, &limit);
    ok(without_contents);
}

static void memory_without_contents_is_counted_and_cannot_be_touched(void **state)
{
    (void)state;
    uint64_t left, total;
    void *reserved, *pinned;
    weir_chunk chunk;
    reopen_devices(false);
    assert_true(faults(new_segment(0, GRANULE)));
    ok(b->vm_reserve(0, GRANULE, 0, &reserved));
    ok(b->vm_create(0, GRANULE, &chunk));
    ok(b->vm_map(0, reserved, GRANULE, chunk));
    ok(b->vm_access(0, reserved, GRANULE, 0));
    assert_true(faults(reserved));
    ok(b->device_memory(0, &left, &total));
    assert_int_equal(total - left, 2 * GRANULE);
    ok(b->vm_unmap(0, reserved, GRANULE));
    ok(b->vm_destroy(0, chunk, GRANULE));
    ok(b->vm_release(0, reserved, GRANULE));
    ok(b->pinned_alloc(0, GRANULE, &pinned));
    assert_false(faults(pinned));
}

static void memory_without_contents_is_neither_copied_nor_filled(void **state)
{
    (void)state;
    char here[4] = { 0 };
    reopen_devices(false);
    void *base = new_segment(0, GRANULE);
    assert_int_equal(b->copy(0, NULL, here, base, sizeof here), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->fill(0, NULL, base, 1, GRANULE), WEIR_ERR_NOT_SUPPORTED);
}

static void contents_are_not_left_out_under_a_device_in_use(void **state)
{
    (void)state;
    ok(b->device_close(0));
    assert_int_equal(weir_host_omit_contents(), WEIR_ERR_BUSY);
    weir_device_caps caps;
    ok(b->device_open(0, &caps));
    assert_false(faults(new_segment(0, GRANULE)));
}

static void memory_has_contents_again_when_the_back_end_is_opened_again(void **state)
{
    reopen_devices(false);
    host_close(state);
    host_open(state);
    assert_false(faults(new_segment(0, GRANULE)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(equal_calls_give_equal_offsets),
        host_test(lowest_free_place_is_used_again),
        host_test(new_segments_are_zero),
        host_test(freed_memory_cannot_be_touched),
        host_test(wrong_frees_say_why),
        host_test(capacity_is_exact),
        host_test(scripted_places_are_used_in_turn),
        host_test(other_size_ends_the_script),
        host_test(taken_place_ends_the_script),
        host_test(failed_allocation_keeps_the_script),
        host_test(places_outside_the_range_are_refused),
        host_test(many_segments_stay_cheap),
        host_test(mapped_but_not_accessible_memory_cannot_be_touched),
        host_test(virtual_memory_misuse_says_why),
        host_test(one_unmap_takes_several_maps),
        host_test(destroyed_chunk_gives_its_pages_back),
        host_test(hint_is_followed_when_it_can_be),
        host_test(managed_memory_counts_against_the_device),
        host_test(managed_memory_is_no_segment),
        host_test(managed_memory_uses_no_scripted_place),
        host_test(wrong_registrations_say_why),
        host_test(closing_a_device_ends_its_registrations),
        host_test(wrong_imports_say_why),
        host_test(a_descriptor_that_only_reads_is_not_imported),
        host_test(a_file_that_cannot_be_executed_is_imported),
        host_test(shared_memory_cannot_be_resized),
        host_test(descriptors_do_not_pass_to_other_programs),
        host_test(files_of_chunks_are_closed),
        host_test(memory_takes_no_standard_descriptor),
        host_test(running_out_of_descriptors_is_reported),
        host_test(running_out_of_records_leaks_nothing),
        host_test(a_limit_on_the_size_of_files_is_reported),
        host_test(large_devices_fit),
        host_test(memory_without_contents_is_counted_and_cannot_be_touched),
        host_test(memory_without_contents_is_neither_copied_nor_filled),
        host_test(contents_are_not_left_out_under_a_device_in_use),
        host_test(memory_has_contents_again_when_the_back_end_is_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
