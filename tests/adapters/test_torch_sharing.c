/*
 * Tensors for other processes: PyTorch asks its allocator for a handle, and the allocator of another process for the
 * memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "pluggable.h"
#include "pool_support.h"
#include "shared/handover.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define assert_good(call) assert_string_equal(call, "")

/* ---- calls of the system that the linker sends here -------------------------------------------------------------- */

static struct {
    atomic_int cut_short;                /* waits of that many seconds take 50 ms */
    _Atomic(void (*)(const void *)) met; /* once, before who has answered or asked is looked at */
    const void *argument;                /* of that, set before it */
    bool refuse_to_listen;
    pid_t *child; /* not NULL: listening forks one, which ends what it has of the handover */
} fake;

int __real_setsockopt(int socket, int level, int name, const void *value, socklen_t size);
int __real_getsockopt(int socket, int level, int name, void *value, socklen_t *size);
int __real_listen(int socket, int backlog);
int __wrap_setsockopt(int socket, int level, int name, const void *value, socklen_t size);
int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *size);
int __wrap_listen(int socket, int backlog);

int __wrap_setsockopt(int socket, int level, int name, const void *value, socklen_t size)
{
    const struct timeval *wait = value, soon = { .tv_usec = 50000 };
    return __real_setsockopt(socket, level, name, wait->tv_sec == fake.cut_short ? &soon : wait, size);
}

int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *size)
{
    void (*met)(const void *) = atomic_exchange(&fake.met, NULL);
    if (met) met(fake.argument);
    return __real_getsockopt(socket, level, name, value, size);
}

int __wrap_listen(int socket, int backlog)
{
    if (fake.child && (*fake.child = fork()) == 0) {
        alarm(30);
        weir_handover_end();
        _exit(0);
    }
    if (!fake.refuse_to_listen) return __real_listen(socket, backlog);
    errno = EADDRINUSE;
    return -1;
}

static void install(void)
{
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_true(pluggable_answer(13));
}

static int open_scene(void **state)
{
    (void)state;
    fake.cut_short = 0;
    fake.met = NULL;
    fake.refuse_to_listen = false;
    fake.child = NULL;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    install();
    return 0;
}

static int close_scene(void **state)
{
    pluggable_become_current(PLUGGABLE_NONE);
    pluggable_set_current(0, NULL);
    weir_handover_end();
    return close_host(state);
}

/* On CUDA the default pool's memory can be shared; the host's only if it was made for that. */
static unsigned char *take(size_t bytes)
{
    void *pointer = NULL;
    if (strcmp(test_backend(), "host") == 0)
        return alloc_from(make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, "")), bytes, WEIR_STREAM_CURRENT);
    assert_good(pluggable_raw_alloc(bytes, &pointer));
    return pointer;
}

typedef struct handle {
    char text[PLUGGABLE_HANDLE];
    ptrdiff_t offset;
} handle;

static handle share(void *pointer)
{
    handle h;
    assert_good(pluggable_share(pointer, h.text, &h.offset));
    return h;
}

/* ---- another process --------------------------------------------------------------------------------------------- */

enum { BYTES = 70 << 20, MINE = 3, THEIRS = 4 };

#define THE_OTHER "the other process"
#define THE_SHARER "the process that shares"

/* The other process: this program again, since a driver does not survive fork(). Its exit status is 0 if all is
 * well. */
static int be_the_other(const char *text, ptrdiff_t offset)
{
    void *unused = NULL, *pointer = NULL;
    pluggable_shared *shared = NULL;
    (void)open_scene(&unused);
    if (pluggable_open_shared(text, offset, &pointer, &shared)[0]) return 1;
    if (!has_pattern(pointer, BYTES, MINE)) return 2;
    write_pattern(pointer, BYTES, THEIRS);
    pluggable_end_shared(shared);
    (void)close_scene(&unused);
    return 0;
}

static int run_the_other(const handle *h)
{
    int status;
    pid_t child;
    char self[] = "/proc/self/exe", mode[] = THE_OTHER, text[PLUGGABLE_HANDLE], offset[32];
    char *const arguments[] = { self, mode, text, offset, NULL };
    snprintf(text, sizeof text, "%s", h->text);
    snprintf(offset, sizeof offset, "%td", h->offset);
    fflush(NULL);
    assert_int_equal(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void another_process_reads_and_writes_a_tensor(void **state)
{
    (void)state;
    unsigned char *tensor = take(BYTES);
    write_pattern(tensor, BYTES, MINE);
    const handle h = share(tensor);
    assert_int_equal(run_the_other(&h), 0);
    assert_true(has_pattern(tensor, BYTES, THEIRS));
}

/* ---- the same process, which may open its own handles ------------------------------------------------------------ */

static void opened_memory_is_the_sharers_and_ends_alone(void **state)
{
    (void)state;
    void *pointer = NULL;
    pluggable_shared *shared = NULL;
    unsigned char *tensor = take(MIB), *beside = take(MIB);
    write_pattern(tensor, MIB, MINE);
    write_pattern(beside, MIB, MINE);
    const handle h = share(tensor), other = share(beside);
    for (int i = 0; i < 2; i++) {
        assert_good(pluggable_open_shared(h.text, h.offset, &pointer, &shared));
        assert_ptr_not_equal(pointer, tensor);
        assert_true(has_pattern(pointer, MIB, MINE + i));
        write_pattern(pointer, MIB, MINE + i + 1);
        pluggable_end_shared(shared);
        assert_true(has_pattern(tensor, MIB, MINE + i + 1));
    }
    assert_good(pluggable_open_shared(other.text, other.offset, &pointer, &shared));
    assert_true(has_pattern(pointer, MIB, MINE));
    pluggable_end_shared(shared);
}

/* Asks the system, which answers instead of ending the process. */
static bool is_mapped(const void *address)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const ssize_t written = write(ends[1], address, 1);
    if (written < 0) assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    return written == 1;
}

static pluggable_shared *open_again(const handle *h, void **pointer)
{
    pluggable_shared *shared = NULL;
    assert_good(pluggable_open_shared(h->text, h->offset, pointer, &shared));
    return shared;
}

/* Returns what was opened: it is still mapped, because it could not be waited for. */
static void *let_die_during_a_capture(const handle *h)
{
    void *pointer = NULL;
    pluggable_shared *shared = open_again(h, &pointer);
    const weir_graph graph = begin_on(new_stream(0));
    pluggable_end_shared(shared);
    assert_good(pluggable_reset());
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_true(is_mapped(pointer));
    return pointer;
}

static void what_dies_during_a_capture_ends_when_the_cache_is_emptied(void **state)
{
    (void)state;
    const handle h = share(take(MIB));
    void *pointer = let_die_during_a_capture(&h);
    assert_good(pluggable_reset());
    assert_false(is_mapped(pointer));
    assert_good(pluggable_reset());
}

static void what_dies_during_a_capture_ends_when_more_is_opened(void **state)
{
    (void)state;
    void *next = NULL;
    const handle h = share(take(MIB)), other = share(take(BYTES));
    void *pointer = let_die_during_a_capture(&h);
    pluggable_shared *shared = open_again(&other, &next);
    if (next != pointer) assert_false(is_mapped(pointer));
    assert_true(is_mapped(next));
    pluggable_end_shared(shared);
    assert_false(is_mapped(next));
}

/* Closing ends what was opened; its address may be that of something that is opened later. */
static void what_dies_during_a_capture_is_forgotten_when_weir_closes(void **state)
{
    void *pointer = NULL;
    handle h = share(take(MIB));
    (void)let_die_during_a_capture(&h);
    (void)close_scene(state);
    (void)open_scene(state);
    h = share(take(MIB));
    pluggable_shared *shared = open_again(&h, &pointer);
    assert_good(pluggable_reset());
    assert_true(is_mapped(pointer));
    pluggable_end_shared(shared);
    assert_false(is_mapped(pointer));
}

static void a_tensor_has_the_same_handle_each_time(void **state)
{
    (void)state;
    unsigned char *tensor = take(MIB);
    const handle first = share(tensor), again = share(tensor), other = share(take(MIB));
    assert_string_equal(first.text, again.text);
    assert_int_equal(first.offset, again.offset);
    assert_string_not_equal(first.text, other.text);
}

static void memory_that_cannot_be_shared_is_an_exception(void **state)
{
    (void)state;
    handle h = { .text = "as before" };
    char theirs[64];
    assert_memory_equal(pluggable_share(theirs, h.text, &h.offset), "exception: weir: ", 17);
    unsigned char *tensor = take(MIB);
    assert_ok(weir_free(tensor));
    assert_non_null(strstr(pluggable_share(tensor, h.text, &h.offset), "already freed"));
    assert_string_equal(h.text, "as before");
}

static void the_sharers_reason_reaches_the_one_that_asks(void **state)
{
    (void)state;
    void *pointer = NULL;
    pluggable_shared *shared = NULL;
    unsigned char *tensor = take(MIB);
    const handle h = share(tensor);
    assert_ok(weir_free(tensor));
    const char *text = pluggable_open_shared(h.text, h.offset, &pointer, &shared);
    char process[64];
    snprintf(process, sizeof process, "process %d, which has the memory: ", (int)getpid());
    assert_non_null(strstr(text, process));
    assert_non_null(strstr(text, "already freed"));
    assert_null(shared);
}

/* "": none. */
static const char *refusal_of(const char *text)
{
    void *pointer = NULL;
    pluggable_shared *shared = NULL;
    const char *refusal = pluggable_open_shared(text, 0, &pointer, &shared);
    if (shared) pluggable_end_shared(shared);
    return refusal;
}

static void handles_that_are_not_weirs_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "",         "\2e",        "weir",         "weir-1:",
                                         "weir-1:5", "weir-1:5:6", "weir-2:1:2:3", "weir-1:5:6:7x" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_non_null(strstr(refusal_of(texts[i]), "was not made by weir"));
}

static void a_process_that_has_ended_is_named(void **state)
{
    (void)state;
    char text[PLUGGABLE_HANDLE];
    snprintf(text, sizeof text, "weir-1:%d:%016llx:1000", (int)getpid(), 12345ULL);
    const char *refusal = refusal_of(text); /* the same process, with another secret */
    assert_non_null(strstr(refusal, "has ended"));
    snprintf(text, sizeof text, "process %d", (int)getpid());
    assert_non_null(strstr(refusal, text));
}

static void nobody_answers_after_the_end_until_something_is_shared_again(void **state)
{
    (void)state;
    unsigned char *tensor = take(MIB);
    const handle h = share(tensor);
    weir_handover_end();
    weir_handover_end();
    assert_non_null(strstr(refusal_of(h.text), "has ended"));
    const handle again = share(tensor);
    assert_string_equal(refusal_of(again.text), "");
    assert_non_null(strstr(refusal_of(h.text), "has ended"));
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 3; /* itself, and two names of folders */
}

/* No descriptor can be had until limit_open_files() again. */
static struct rlimit limit_open_files(void)
{
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    const int next = dup(STDIN_FILENO);
    close(next);
    few.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    return before;
}

static void too_many_open_files_are_the_reason(void **state)
{
    (void)state;
    unsigned char *tensor = take(BYTES);
    const handle h = share(tensor);
    const struct rlimit before = limit_open_files();
    char refusal[2048];
    snprintf(refusal, sizeof refusal, "%s", refusal_of(h.text));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(refusal, "ulimit -n"));
    assert_string_equal(refusal_of(h.text), "");
}

/* ---- signals, forks, and no descriptors ------------------------------------------------------------------------- */

static void ignore(int signal)
{
    (void)signal;
}

static socklen_t name_of(int process, unsigned long long secret, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    const int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "weir-%d-%016llx", process, secret);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Somebody else who listens, and ends instead of answering, or answers wrongly. */
typedef struct liar {
    char text[PLUGGABLE_HANDLE];
    int listener;
    bool reads;
    int before;         /* a connection that is to be accepted first, and is late; 0: none */
    uint32_t says[132]; /* as long as an answer: the status, and how many parts; 0: nothing */
    weir_export_part parts[2];
    int given;           /* how many parts of those, in one message */
    bool leaves_no_room; /* lowers the limit of open files to what is open */
    pthread_t thread;
} liar;

static void give_parts(const liar *l, int connection)
{
    uint64_t sizes[64] = { 0 };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = { .bytes = { 0 } };
    const size_t length = (size_t)l->given * sizeof(int);
    control.header =
        (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(length) };
    for (int i = 0; i < l->given; i++) {
        sizes[i] = l->parts[i].bytes;
        memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &l->parts[i].descriptor, sizeof(int));
    }
    struct iovec data = { sizes, sizeof sizes };
    const struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(length)
    };
    (void)!sendmsg(connection, &message, MSG_NOSIGNAL);
}

static void turn_away(const void *listener)
{
    close(accept(*(const int *)listener, NULL, NULL));
}

static void *end_late(void *argument)
{
    const liar *l = argument;
    uint64_t question;
    if (l->before) usleep(200000), turn_away(&l->listener);
    const int connection = accept(l->listener, NULL, NULL);
    if (l->reads) (void)!read(connection, &question, sizeof question);
    if (l->says[0] || l->says[1]) (void)!send(connection, l->says, sizeof l->says, MSG_NOSIGNAL);
    if (l->leaves_no_room) (void)limit_open_files();
    if (l->given) give_parts(l, connection);
    if (!l->given) usleep(200000);
    if (l->leaves_no_room) (void)!read(connection, &question, sizeof question); /* until the other end is closed */
    close(connection);
    return NULL;
}

/* Whoever opens `text` meets the listener. */
static void listen_as_liar(liar *l)
{
    struct sockaddr_un name;
    const socklen_t size = name_of((int)getpid(), 77, &name);
    l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l->listener, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(l->listener, 0), 0);
    snprintf(l->text, sizeof l->text, "weir-1:%d:%016llx:1000", (int)getpid(), 77ULL);
}

static void start(liar *l, bool reads)
{
    struct sockaddr_un name;
    const socklen_t size = name_of((int)getpid(), 77, &name);
    l->reads = reads;
    listen_as_liar(l);
    if (l->before) assert_int_equal(connect(l->before, (struct sockaddr *)&name, size), 0);
    assert_int_equal(pthread_create(&l->thread, NULL, end_late, l), 0);
}

static void end(const liar *l)
{
    pthread_join(l->thread, NULL);
    close(l->listener);
}

static void a_process_that_does_not_answer_is_named(void **state)
{
    (void)state;
    liar l = { 0 };
    listen_as_liar(&l);
    fake.cut_short = 60;
    assert_non_null(strstr(refusal_of(l.text), "has not answered for 60 seconds"));
    close(l.listener);
}

static void a_process_that_ends_before_it_is_asked_is_named(void **state)
{
    (void)state;
    liar l = { 0 };
    listen_as_liar(&l);
    fake.argument = &l.listener;
    fake.met = turn_away;
    assert_non_null(strstr(refusal_of(l.text), "has ended"));
    close(l.listener);
}

static void the_other_sides_reason_is_cut_to_fit(void **state)
{
    (void)state;
    liar l = { .says = { (uint32_t)WEIR_ERR_BUSY } };
    memset(&l.says[4], 'z', sizeof l.says - 4 * sizeof l.says[0]);
    start(&l, true);
    const char *reason = strchr(refusal_of(l.text), 'z');
    assert_non_null(reason);
    assert_int_equal(strspn(reason, "z"), sizeof l.says - 4 * sizeof l.says[0] - 1);
    end(&l);
}

static void an_answer_of_too_many_parts_is_refused(void **state)
{
    (void)state;
    liar l = { .says = { WEIR_OK, UINT32_MAX } };
    start(&l, true);
    assert_non_null(strstr(refusal_of(l.text), "is not weir's"));
    end(&l);
}

static void a_process_that_ends_while_it_is_asked_is_named(void **state)
{
    (void)state;
    liar l = { 0 };
    start(&l, false);
    assert_non_null(strstr(refusal_of(l.text), "has ended"));
    end(&l);
}

/* What is at an offset in the only part of a tensor, which the liar gives the descriptor of. */
static liar liar_about(const void *tensor, uint64_t offset)
{
    size_t count = 0;
    uint64_t unused = 0;
    liar l = { .says = { WEIR_OK, 1, (uint32_t)offset }, .given = 1 };
    assert_ok(weir_export(tensor, l.parts, 1, &count, &unused));
    assert_int_equal(count, 1);
    return l;
}

static void memory_of_another_process_ends_where_its_parts_end(void **state)
{
    (void)state;
    const void *tensor = take(MIB);
    for (int beyond = 0; beyond < 2; beyond++) {
        liar l = liar_about(tensor, 0);
        l.says[2] = (uint32_t)(l.parts[0].bytes - !beyond);
        start(&l, true);
        const char *refusal = refusal_of(l.text);
        if (beyond)
            assert_non_null(strstr(refusal, "is not weir's"));
        else
            assert_string_equal(refusal, "");
        end(&l);
        close(l.parts[0].descriptor);
    }
}

static void descriptors_that_nobody_announced_are_closed(void **state)
{
    (void)state;
    liar l = liar_about(take(MIB), 0);
    l.given = 2;
    l.parts[1] = (weir_export_part){ .descriptor = dup(STDIN_FILENO) };
    const int before = open_descriptors();
    start(&l, true);
    assert_string_equal(refusal_of(l.text), "");
    end(&l);
    assert_int_equal(open_descriptors(), before);
    close(l.parts[0].descriptor);
    close(l.parts[1].descriptor);
}

static void descriptors_that_find_no_room_are_the_reason(void **state)
{
    (void)state;
    struct rlimit before;
    liar l = liar_about(take(MIB), 0);
    l.leaves_no_room = true;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    start(&l, true);
    char refusal[2048];
    snprintf(refusal, sizeof refusal, "%s", refusal_of(l.text));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    end(&l);
    assert_non_null(strstr(refusal, "ulimit -n"));
    close(l.parts[0].descriptor);
}

static void sharing_leaves_no_descriptor_behind(void **state)
{
    (void)state;
    int before = 0;
    unsigned char *tensor = take(MIB);
    for (int i = 0; i < 3; i++) {
        const handle h = share(tensor);
        assert_string_equal(refusal_of(h.text), "");
        weir_handover_end();
        if (i == 0) before = open_descriptors(); /* weir keeps that of the chunk */
    }
    assert_int_equal(open_descriptors(), before);
}

static void sharing_that_cannot_begin_says_so_and_leaves_nothing(void **state)
{
    (void)state;
    handle h = { .text = "as before" };
    unsigned char *tensor = take(MIB);
    (void)share(tensor); /* weir keeps the chunk's descriptor from now on */
    weir_handover_end();
    const int before = open_descriptors();
    fake.refuse_to_listen = true;
    assert_non_null(strstr(pluggable_share(tensor, h.text, &h.offset), "nobody can answer them"));
    assert_string_equal(h.text, "as before");
    assert_int_equal(open_descriptors(), before);
    fake.refuse_to_listen = false;
    h = share(tensor);
    assert_string_equal(refusal_of(h.text), "");
}

/* On CUDA: the host has one part. Each stream leaves a chunk to the default one. */
static void memory_of_many_chunks_comes_in_several_messages(void **state)
{
    (void)state;
    enum { STREAMS = 100 };
    const size_t bytes = STREAMS * 2 * MIB;
    void *pointer = NULL, *blocks[STREAMS];
    weir_stream streams[STREAMS];
    pluggable_shared *shared = NULL;
    size_t count = 0;
    uint64_t offset = 0;
    if (strcmp(test_backend(), "host") == 0) skip();
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        blocks[i] = alloc_on(2 * MIB, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(weir_free(blocks[i]));
        assert_ok(weir_stream_destroy(streams[i]));
    }
    unsigned char *tensor = take(bytes);
    assert_ok(weir_export(tensor, NULL, 0, &count, &offset));
    assert_true(count > 64); /* as many as one message has */
    const handle h = share(tensor);
    assert_good(pluggable_open_shared(h.text, h.offset, &pointer, &shared));
    for (size_t at = 0; at < bytes; at += 2 * MIB) {
        tensor[at] = (unsigned char)(at / MIB);
        assert_int_equal(((unsigned char *)pointer)[at], tensor[at]);
    }
    pluggable_end_shared(shared);
}

/* What the liar makes of the request while signals come all the time, of which its thread gets none. */
static const char *refusal_among_signals(liar *l)
{
    struct sigaction before;
    sigset_t alarm_only;
    const struct sigaction ignored = { .sa_handler = ignore, .sa_flags = SA_RESTART };
    const struct itimerval often = { .it_interval.tv_usec = 20000, .it_value.tv_usec = 20000 }, never = { 0 };
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &alarm_only, NULL), 0);
    start(l, true);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &ignored, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    const char *refusal = refusal_of(l->text);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    end(l);
    return refusal;
}

static void signals_do_not_disturb_who_waits_for_an_answer(void **state)
{
    (void)state;
    liar l = { 0 };
    assert_non_null(strstr(refusal_among_signals(&l), "has ended"));
}

static void signals_do_not_disturb_who_waits_to_be_let_in(void **state)
{
    (void)state;
    liar l = { .before = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) };
    assert_non_null(strstr(refusal_among_signals(&l), "has ended"));
    close(l.before);
}

static void signals_do_not_disturb_who_waits_for_descriptors(void **state)
{
    (void)state;
    liar l = { .says = { WEIR_OK, 1 } };
    assert_non_null(strstr(refusal_among_signals(&l), "has ended"));
}

/* Another process: shares something, leaves a child behind, tells the handle and the child, and ends. */
static int share_and_leave_a_child(void)
{
    void *unused = NULL;
    (void)open_scene(&unused);
    const handle h = share(take(MIB));
    const pid_t child = fork();
    if (child == 0) {
        alarm(100);
        pause();
        _exit(0);
    }
    printf("%s %d\n", h.text, (int)child);
    fflush(stdout);
    _exit(0);
}

static void a_child_that_was_forked_does_not_hide_that_the_process_has_ended(void **state)
{
    (void)state;
    char text[PLUGGABLE_HANDLE], refusal[2048];
    int child = 0;
    FILE *other = popen("exec /proc/$PPID/exe '" THE_SHARER "'", "r");
    assert_non_null(other);
    assert_int_equal(fscanf(other, "%127s %d", text, &child), 2);
    int process = 0;
    assert_int_equal(sscanf(text, "weir-1:%d:", &process), 1);
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)process, &ended, WEXITED | WNOWAIT), 0);
    snprintf(refusal, sizeof refusal, "%s", refusal_of(text));
    assert_int_equal(kill(child, SIGKILL), 0);
    pclose(other);
    assert_non_null(strstr(refusal, "has ended"));
}

static void the_end_does_not_wait_for_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    struct sockaddr_un name;
    int process = 0;
    unsigned long long secret = 0;
    const handle h = share(take(MIB));
    assert_int_equal(sscanf(h.text, "weir-1:%d:%llx:", &process, &secret), 2);
    const socklen_t size = name_of(process, secret, &name);
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(connection, (struct sockaddr *)&name, size), 0);
    close(connection);
    usleep(50000); /* the thread has asked for the next one by now */
    alarm(20);
    weir_handover_end();
    alarm(0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- those who ask wrongly --------------------------------------------------------------------------------------- */

static int connect_to(const handle *h)
{
    int process = 0;
    unsigned long long secret = 0;
    struct sockaddr_un name;
    assert_int_equal(sscanf(h->text, "weir-1:%d:%llx:", &process, &secret), 2);
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(connection >= 0);
    const socklen_t size = name_of(process, secret, &name);
    assert_int_equal(connect(connection, (struct sockaddr *)&name, size), 0);
    return connection;
}

static void who_asks_wrongly_gets_nothing_and_harms_nobody(void **state)
{
    (void)state;
    char nothing[8];
    const handle h = share(take(MIB));
    close(connect_to(&h));
    const int connection = connect_to(&h);
    assert_int_equal(send(connection, "abc", 3, MSG_NOSIGNAL), 3);
    assert_true(recv(connection, nothing, sizeof nothing, 0) <= 0);
    close(connection);
    const int leaver = connect_to(&h);
    const uint64_t address = 1;
    assert_int_equal(send(leaver, &address, sizeof address, MSG_NOSIGNAL), sizeof address);
    close(leaver); /* does not wait for the answer */
    assert_string_equal(refusal_of(h.text), "");
}

static void who_asks_nothing_holds_up_others_for_a_while_only(void **state)
{
    (void)state;
    fake.cut_short = 10;
    const handle h = share(take(MIB));
    const int silent = connect_to(&h);
    assert_string_equal(refusal_of(h.text), "");
    close(silent);
}

/* The calling thread's alone, unlike seteuid(). */
static void become(uid_t user)
{
    assert_int_equal(syscall(SYS_setresuid, -1, user, -1), 0);
}

static void another_user_gets_nothing(void **state)
{
    (void)state;
    char nothing[8];
    const uint64_t address = 1;
    if (geteuid() != 0) skip();
    const handle h = share(take(MIB));
    become(1);
    const int connection = connect_to(&h);
    become(0);
    (void)!send(connection, &address, sizeof address, MSG_NOSIGNAL);
    assert_true(recv(connection, nothing, sizeof nothing, 0) <= 0);
    close(connection);
}

static void another_users_process_is_not_believed(void **state)
{
    (void)state;
    liar l = { 0 };
    if (geteuid() != 0) skip();
    become(1);
    listen_as_liar(&l);
    become(0);
    assert_non_null(strstr(refusal_of(l.text), "is another user's"));
    close(l.listener);
}

/* ---- what the thread that answers leaves alone ------------------------------------------------------------------- */

static void the_programs_signals_are_not_for_the_thread_that_answers(void **state)
{
    (void)state;
    sigset_t mine, waiting;
    struct sigaction before;
    const struct sigaction ignored = { .sa_handler = ignore };
    (void)share(take(MIB));
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mine), 0);
    assert_false(sigismember(&mine, SIGUSR1));
    sigaddset(&mine, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &ignored, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &mine, NULL), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    usleep(50000); /* for another thread to take it */
    assert_int_equal(sigpending(&waiting), 0);
    assert_true(sigismember(&waiting, SIGUSR1));
    sigdelset(&mine, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mine, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static void the_end_in_a_child_that_was_forked_meanwhile_waits_for_nobody(void **state)
{
    (void)state;
    int status = 0;
    pid_t child = -1;
    unsigned char *tensor = take(MIB);
    fflush(NULL);
    fake.child = &child; /* the lock is held as a thread begins to answer */
    (void)share(tensor);
    fake.child = NULL;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- many at once, and short memory ------------------------------------------------------------------------------ */

static void *open_often(void *argument)
{
    const handle *h = argument;
    for (int i = 0; i < 20; i++) {
        void *pointer = NULL;
        pluggable_shared *shared = NULL;
        if (pluggable_open_shared(h->text, h->offset, &pointer, &shared)[0]) return argument;
        const bool good = has_pattern(pointer, 1000, MINE);
        pluggable_end_shared(shared);
        if (!good) return argument;
    }
    return NULL;
}

static void threads_share_and_open_at_once(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    handle handles[THREADS];
    for (int i = 0; i < THREADS; i++) {
        unsigned char *tensor = take(MIB);
        write_pattern(tensor, 1000, MINE);
        handles[i] = share(tensor);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_often, &handles[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void let_go(void *pointer)
{
    assert_ok(weir_free(pointer));
}

static void short_memory_is_had_from_what_others_have_let_go_of(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_ok(weir_memory_limit_set(0, 256 * MIB));
    unsigned char *tensor = take(2 * MIB), *gone = alloc(200 * MIB);
    assert_memory_equal(pluggable_raw_alloc(150 * MIB, &pointer), "OutOfMemoryError", 16);
    (void)share(tensor);
    (void)share(tensor);
    pluggable_set_collect(let_go, gone);
    assert_good(pluggable_raw_alloc(150 * MIB, &pointer));
    assert_good(pluggable_delete(pointer));
}

static bool share_again(void *tensor, int device, size_t needed)
{
    (void)device;
    (void)needed;
    (void)share(tensor);
    return false;
}

static void sharing_while_memory_is_short_keeps_nobody_from_being_asked(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_ok(weir_memory_limit_set(0, 256 * MIB));
    unsigned char *tensor = take(2 * MIB), *gone = alloc(200 * MIB);
    assert_ok(weir_reclaim_add(share_again, tensor));
    (void)share(tensor);
    pluggable_set_collect(let_go, gone);
    assert_good(pluggable_raw_alloc(150 * MIB, &pointer));
    assert_good(pluggable_delete(pointer));
    assert_ok(weir_reclaim_remove(share_again, tensor));
}

static void an_exception_of_pytorchs_while_memory_is_short_ends_there(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_ok(weir_memory_limit_set(0, 256 * MIB));
    unsigned char *tensor = take(2 * MIB), *gone = alloc(200 * MIB);
    (void)share(tensor);
    pluggable_set_collect(pluggable_throw, NULL);
    assert_memory_equal(pluggable_raw_alloc(150 * MIB, &pointer), "OutOfMemoryError", 16);
    pluggable_set_collect(let_go, gone); /* the thread asks again */
    assert_good(pluggable_raw_alloc(150 * MIB, &pointer));
    assert_good(pluggable_delete(pointer));
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        test(another_process_reads_and_writes_a_tensor),
        test(opened_memory_is_the_sharers_and_ends_alone),
        test(what_dies_during_a_capture_ends_when_the_cache_is_emptied),
        test(what_dies_during_a_capture_ends_when_more_is_opened),
        test(what_dies_during_a_capture_is_forgotten_when_weir_closes),
        test(a_tensor_has_the_same_handle_each_time),
        test(memory_that_cannot_be_shared_is_an_exception),
        test(the_sharers_reason_reaches_the_one_that_asks),
        test(handles_that_are_not_weirs_are_refused),
        test(a_process_that_has_ended_is_named),
        test(nobody_answers_after_the_end_until_something_is_shared_again),
        test(too_many_open_files_are_the_reason),
        test(a_process_that_ends_while_it_is_asked_is_named),
        test(a_process_that_does_not_answer_is_named),
        test(a_process_that_ends_before_it_is_asked_is_named),
        test(the_other_sides_reason_is_cut_to_fit),
        test(an_answer_of_too_many_parts_is_refused),
        test(memory_of_another_process_ends_where_its_parts_end),
        test(descriptors_that_nobody_announced_are_closed),
        test(descriptors_that_find_no_room_are_the_reason),
        test(sharing_leaves_no_descriptor_behind),
        test(sharing_that_cannot_begin_says_so_and_leaves_nothing),
        test(memory_of_many_chunks_comes_in_several_messages),
        test(signals_do_not_disturb_who_waits_for_an_answer),
        test(signals_do_not_disturb_who_waits_to_be_let_in),
        test(signals_do_not_disturb_who_waits_for_descriptors),
        test(a_child_that_was_forked_does_not_hide_that_the_process_has_ended),
        test(the_end_does_not_wait_for_descriptors),
        test(who_asks_wrongly_gets_nothing_and_harms_nobody),
        test(who_asks_nothing_holds_up_others_for_a_while_only),
        test(another_user_gets_nothing),
        test(another_users_process_is_not_believed),
        test(the_programs_signals_are_not_for_the_thread_that_answers),
        test(the_end_in_a_child_that_was_forked_meanwhile_waits_for_nobody),
        test(threads_share_and_open_at_once),
        test(short_memory_is_had_from_what_others_have_let_go_of),
        test(sharing_while_memory_is_short_keeps_nobody_from_being_asked),
        test(an_exception_of_pytorchs_while_memory_is_short_ends_there),
    };
    if (argc == 4 && strcmp(argv[1], THE_OTHER) == 0) return be_the_other(argv[2], strtol(argv[3], NULL, 10));
    if (argc == 2 && strcmp(argv[1], THE_SHARER) == 0) return share_and_leave_a_child();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
