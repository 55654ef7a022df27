#include "shared/handover.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A message carries at most 253 descriptors (the kernel's SCM_MAX_FD). */
enum {
    BATCH = 64,
    PARTS_MOST = 1 << 20, /* 2 TiB of the smallest chunks: more is no answer of weir's */
    WAIT_SECONDS = 60,    /* for the process that has the memory, which answers one after the other */
    CLIENT_SECONDS = 10,  /* for one that has asked, so that it does not hold up the others for long */
    RETRY_NS = 10000000
};

/* What a text says. */
typedef struct place {
    int process;
    unsigned long long secret; /* of the process, so that no later one is taken for it */
    uint64_t address;
} place;

typedef struct question {
    uint64_t address;
} question;

/* If the status is WEIR_OK, `count` parts follow, BATCH to a message: their sizes, and the descriptors beside. */
typedef struct answer {
    int32_t status;
    uint32_t count;
    uint64_t offset;
    char text[512];
} answer;

typedef struct batch {
    uint64_t bytes[BATCH];
} batch;

typedef union control {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(BATCH * sizeof(int))];
} control;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Who answers. Under the lock; a forked child, in which it may be held for ever, looks at `process` first. */
static struct {
    unsigned long long secret; /* 0: nobody */
    atomic_int process;
    atomic_int listener; /* -1: none */
    atomic_bool ends;
    pthread_t thread;
} answering = { .listener = -1 };

__attribute__((format(printf, 3, 4))) static weir_status fail(weir_error *why, weir_status status, const char *format,
                                                              ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    why->status = status;
    return status;
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

/* Abstract: no file, and gone with the process. */
static socklen_t socket_name(int process, unsigned long long of, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    const int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "weir-%d-%016llx", process, of);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool same_user(int connection)
{
    struct ucred other;
    socklen_t size = sizeof other;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

static void set_patience(int connection, int seconds)
{
    const struct timeval wait = { .tv_sec = seconds };
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

/* Where there is a limit to the wait, a signal ends it, SA_RESTART or not, and so does stopping the process. */
static ssize_t send_message(int connection, const struct msghdr *message)
{
    ssize_t sent = 0;
    do sent = sendmsg(connection, message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static ssize_t receive_message(int connection, struct msghdr *message)
{
    ssize_t got = 0;
    do got = recvmsg(connection, message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got >= 0) errno = 0; /* else it may be that of a signal */
    return got;
}

static bool send_all(int connection, const void *what, size_t bytes)
{
    struct iovec data = { (void *)(uintptr_t)what, bytes };
    const struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    return send_message(connection, &message) == (ssize_t)bytes;
}

/* False: errno says why; 0: the other side has ended, or says something else. */
static bool receive_all(int connection, void *out, size_t bytes)
{
    struct iovec data = { out, bytes };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    return receive_message(connection, &message) == (ssize_t)bytes;
}

static void close_all(const weir_export_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) close(parts[i].descriptor);
}

/* ---- the process that has the memory ----------------------------------------------------------------------------- */

static bool send_batch(int connection, const weir_export_part *parts, size_t count)
{
    batch sizes = { { 0 } };
    control c = { .bytes = { 0 } };
    int descriptors[BATCH];
    for (size_t i = 0; i < count; i++) {
        sizes.bytes[i] = parts[i].bytes;
        descriptors[i] = parts[i].descriptor;
    }
    c.aligned.cmsg_level = SOL_SOCKET;
    c.aligned.cmsg_type = SCM_RIGHTS;
    c.aligned.cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(&c.aligned), descriptors, count * sizeof(int));
    struct iovec data = { &sizes, sizeof sizes };
    const struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(count * sizeof(int))
    };
    return send_message(connection, &message) == (ssize_t)sizeof sizes;
}

static void send_parts(int connection, const weir_export_part *parts, size_t count)
{
    bool sent = true;
    for (size_t i = 0; i < count && sent; i += BATCH)
        sent = send_batch(connection, parts + i, count - i < BATCH ? count - i : BATCH);
}

static answer export_all(uint64_t address, weir_export_part **parts)
{
    answer a = { 0 };
    size_t count = 0, made = 0;
    const void *pointer = (const void *)(uintptr_t)address;
    const char *reason = NULL;
    weir_status status = weir_export(pointer, NULL, 0, &count, &a.offset);
    *parts = status == WEIR_OK ? calloc(count, sizeof **parts) : NULL;
    if (*parts) {
        status = weir_export(pointer, *parts, count, &made, &a.offset);
    } else if (status == WEIR_OK) {
        status = WEIR_ERR_OUT_OF_HOST_MEMORY;
        reason = "there is no memory left for the descriptors";
    }
    if (status == WEIR_OK && made > count) {
        status = WEIR_ERR_UNKNOWN_POINTER;
        reason = "the memory was freed meanwhile";
    }
    a.status = status;
    if (status == WEIR_OK) a.count = (uint32_t)made;
    if (status != WEIR_OK) snprintf(a.text, sizeof a.text, "%s", reason ? reason : weir_error_text());
    return a;
}

static void serve(int connection)
{
    question q = { 0 };
    weir_export_part *parts = NULL;
    set_patience(connection, CLIENT_SECONDS);
    if (!same_user(connection) || !receive_all(connection, &q, sizeof q)) return;
    const answer a = export_all(q.address, &parts);
    const bool sent = send_all(connection, &a, sizeof a);
    if (!parts) return;
    if (sent) send_parts(connection, parts, a.count);
    close_all(parts, a.count);
    free(parts);
}

static void *serve_all(void *argument)
{
    const int listener = (int)(intptr_t)argument;
    while (!atomic_load(&answering.ends)) {
        const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) { /* shut down, or no descriptor is free, say */
            const struct timespec pause = { .tv_nsec = RETRY_NS };
            nanosleep(&pause, NULL);
            continue;
        }
        serve(connection);
        close(connection);
    }
    return NULL;
}

/* Else who asks would wait in vain when this process has ended. */
static void close_in_child(void)
{
    const int listener = atomic_exchange(&answering.listener, -1);
    if (listener >= 0) close(listener);
}

static void watch_fork(void)
{
    (void)pthread_atfork(NULL, NULL, close_in_child);
}

/* The program's signals are not for this thread. Returns what pthread_create returns. */
static int start_thread_locked(int listener)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&answering.thread, NULL, serve_all, (void *)(intptr_t)listener);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Returns 0 or an error of the system's. */
static int listen_locked(unsigned long long secret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sockaddr_un name;
    pthread_once(&once, watch_fork);
    atomic_store(&answering.ends, false);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0) return errno;
    const socklen_t size = socket_name((int)getpid(), secret, &name);
    int error =
        bind(listener, (const struct sockaddr *)&name, size) != 0 || listen(listener, SOMAXCONN) != 0 ? errno : 0;
    if (error == 0) error = start_thread_locked(listener);
    if (error != 0) {
        close(listener);
        return error;
    }
    answering.secret = secret;
    atomic_store(&answering.process, (int)getpid());
    atomic_store(&answering.listener, listener);
    return 0;
}

static weir_status start_locked(weir_error *why)
{
    unsigned long long secret = 0;
    if (answering.secret != 0) return WEIR_OK;
    int error = getrandom(&secret, sizeof secret, 0) == (ssize_t)sizeof secret ? 0 : errno;
    if (error == 0) error = listen_locked(secret | 1);
    if (error != 0)
        return fail(why, WEIR_ERR_IO, "memory cannot be given to other processes: nobody can answer them: %s",
                    strerror(error));
    return WEIR_OK;
}

weir_status wa_hand_over(const void *address, char text[WA_HANDOVER_TEXT], bool *first, weir_error *why)
{
    size_t count = 0;
    uint64_t offset = 0;
    weir_status status = weir_export(address, NULL, 0, &count, &offset); /* says now what could only fail later */
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&lock);
    const bool began = answering.secret == 0;
    status = start_locked(why);
    if (status == WEIR_OK)
        snprintf(text, WA_HANDOVER_TEXT, "weir-1:%d:%016llx:%llx", atomic_load(&answering.process), answering.secret,
                 (unsigned long long)(uintptr_t)address);
    pthread_mutex_unlock(&lock);
    if (status == WEIR_OK) *first = began;
    return status;
}

void weir_handover_end(void)
{
    if (atomic_load(&answering.process) != (int)getpid()) return;
    pthread_mutex_lock(&lock);
    if (answering.secret != 0) {
        atomic_store(&answering.ends, true);
        (void)shutdown(answering.listener, SHUT_RDWR);
        pthread_join(answering.thread, NULL);
        close(atomic_exchange(&answering.listener, -1));
        answering.secret = 0;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the process that wants it ----------------------------------------------------------------------------------- */

static weir_status read_text(const char *text, place *out, weir_error *why)
{
    unsigned long long address = 0;
    int end = 0;
    /* No process has a number of more digits. */
    const int found = sscanf(text, "weir-1:%9d:%16llx:%16llx%n", &out->process, &out->secret, &address, &end);
    if (found != 3 || text[end] != '\0')
        return fail(
            why, WEIR_ERR_FORMAT,
            "this handle of memory was not made by weir, or by another version of it; the process that it comes "
            "from must have the same weir installed before it uses a GPU");
    out->address = address;
    return WEIR_OK;
}

static weir_status no_answer(const place *where, int error, weir_error *why)
{
    if (error == EAGAIN || error == EWOULDBLOCK)
        return fail(why, WEIR_ERR_TIMEOUT, "process %d, which has the memory, has not answered for %d seconds",
                    where->process, WAIT_SECONDS);
    if (error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == 0)
        return fail(why, WEIR_ERR_IO,
                    "process %d, which had the memory, has ended, or is in another network namespace; it must live as "
                    "long as its memory is used elsewhere",
                    where->process);
    if (error == EMFILE)
        return fail(why, WEIR_ERR_IO,
                    "this process may not open enough files to take the memory: each chunk of it needs a descriptor "
                    "for a moment; raise the limit (ulimit -n)");
    return fail(why, WEIR_ERR_IO, "memory cannot be had from process %d: %s", where->process, strerror(error));
}

static weir_status ask(const place *where, int connection, answer *out, weir_error *why)
{
    struct sockaddr_un name;
    const question q = { where->address };
    const socklen_t size = socket_name(where->process, where->secret, &name);
    set_patience(connection, WAIT_SECONDS);
    int refused = 0;
    do refused = connect(connection, (const struct sockaddr *)&name, size);
    while (refused && errno == EINTR);
    if (refused) return no_answer(where, errno, why);
    if (!same_user(connection))
        return fail(why, WEIR_ERR_IO, "process %d, which has the memory, is another user's", where->process);
    if (!send_all(connection, &q, sizeof q) || !receive_all(connection, out, sizeof *out))
        return no_answer(where, errno, why);
    out->text[sizeof out->text - 1] = '\0';
    if (out->status != WEIR_OK)
        return fail(why, (weir_status)out->status, "process %d, which has the memory: %s", where->process, out->text);
    return WEIR_OK;
}

/* One message's. Returns how many there are now; fewer than `expected`: errno says why, or the message was short. */
static size_t receive_batch(int connection, size_t expected, weir_export_part *parts)
{
    batch sizes = { { 0 } };
    control c = { .bytes = { 0 } };
    int descriptors[BATCH];
    struct iovec data = { &sizes, sizeof sizes };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
    const ssize_t got = receive_message(connection, &message);
    const struct cmsghdr *header = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
        if (got >= 0 && (message.msg_flags & MSG_CTRUNC)) errno = EMFILE;
        return 0;
    }
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    for (size_t i = expected; i < count; i++) close(descriptors[i]);
    if (count > expected) count = expected;
    for (size_t i = 0; i < count; i++)
        parts[i] = (weir_export_part){ .bytes = sizes.bytes[i], .descriptor = descriptors[i] };
    if (message.msg_flags & MSG_CTRUNC) errno = EMFILE;
    return count;
}

typedef struct received {
    weir_export_part *parts;
    size_t count;
} received;

/* The array grows with what comes, whatever is said of it. */
static weir_status receive(const place *where, int connection, size_t count, received *r, weir_error *why)
{
    while (r->count < count) {
        const size_t expected = count - r->count < BATCH ? count - r->count : BATCH;
        weir_export_part *more = realloc(r->parts, (r->count + BATCH) * sizeof *more);
        if (!more) return fail(why, WEIR_ERR_OUT_OF_HOST_MEMORY, "there is no memory left for %zu descriptors", count);
        r->parts = more;
        const size_t got = receive_batch(connection, expected, r->parts + r->count);
        r->count += got;
        if (got < expected) return no_answer(where, errno, why);
    }
    return WEIR_OK;
}

static uint64_t total_of(const received *r)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->count; i++) bytes += r->parts[i].bytes;
    return bytes;
}

static weir_status not_weirs(const place *where, weir_error *why)
{
    return fail(why, WEIR_ERR_IO, "what process %d has answered is not weir's", where->process);
}

static weir_status take(const place *where, int connection, int device, void **address, void **base, weir_error *why)
{
    answer a = { 0 };
    received r = { NULL, 0 };
    weir_status status = ask(where, connection, &a, why);
    if (status != WEIR_OK) return status;
    if (a.count > PARTS_MOST) return not_weirs(where, why);
    status = receive(where, connection, a.count, &r, why);
    if (status == WEIR_OK && a.offset >= total_of(&r)) status = not_weirs(where, why);
    if (status == WEIR_OK) status = weir_import(device, r.parts, r.count, base);
    if (status == WEIR_OK) *address = (char *)*base + a.offset;
    close_all(r.parts, r.count);
    free(r.parts);
    return status;
}

weir_status wa_take_over(const char *text, int device, void **address, void **base, weir_error *why)
{
    place where = { 0 };
    weir_status status = read_text(text, &where, why);
    if (status != WEIR_OK) return status;
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection < 0) return no_answer(&where, errno, why);
    status = take(&where, connection, device, address, base, why);
    close(connection);
    return status;
}
