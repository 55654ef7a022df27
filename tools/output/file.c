#include "output/file.h"

#include "cli.h"
#include "grow.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the target's folder. Not the target's name with a suffix, which could be too long. */
#define SCRATCH ".weir.XXXXXX"

enum { LINKS_MAX = 40 }; /* as many as the kernel follows */

/* ---- what ending early must not leave behind --------------------------------------------------------------------- */

static _Atomic(const char *) unfinished; /* a file's name */

static void remove_unfinished(void)
{
    const char *path = atomic_load(&unfinished);
    if (path) unlink(path);
}

/* A second signal, even in another thread, must not end the process before the first one's handler is done. */
static void leave_nothing(int number)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&begun)) return;
    remove_unfinished();
    signal(number, SIG_DFL);
    raise(number);
}

/* Signals that the parent process set to be ignored stay ignored. A command that lacks memory ends with exit(). */
static void watch_ends(void)
{
    static const int ending[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU };
    static bool watching;
    if (watching) return;
    watching = true;
    (void)atexit(remove_unfinished);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction old, ours = { .sa_handler = leave_nothing };
        if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) (void)sigaction(ending[i], &ours, NULL);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Replaces the path of a link by the path that it leads to. */
static bool follow(char target[PATH_MAX])
{
    char text[PATH_MAX];
    ssize_t length = readlink(target, text, sizeof text);
    if (length <= 0) return false;
    char *slash = strrchr(target, '/'), *from = slash && text[0] != '/' ? slash + 1 : target;
    if (from - target + length >= PATH_MAX) return false;
    memcpy(from, text, (size_t)length);
    from[length] = '\0';
    return true;
}

/* Where a file that does not exist yet would be made. */
typedef struct place {
    char target[PATH_MAX];
    const char *name; /* in `target` */
    struct stat folder;
} place;

static bool find_place(const char *path, place *p)
{
    struct stat status;
    const size_t length = strlen(path);
    if (length >= PATH_MAX) return false;
    memcpy(p->target, path, length + 1);
    for (int links = 0; lstat(p->target, &status) == 0; links++)
        if (links == LINKS_MAX || !S_ISLNK(status.st_mode) || !follow(p->target)) return false;
    char *slash = strrchr(p->target, '/');
    p->name = slash ? slash + 1 : p->target;
    if (!slash) return stat(".", &p->folder) == 0;
    *slash = '\0';
    return stat(slash == p->target ? "/" : p->target, &p->folder) == 0;
}

static bool would_be_one(const char *one, const char *other)
{
    place a, b;
    return find_place(one, &a) && find_place(other, &b) && a.folder.st_dev == b.folder.st_dev &&
           a.folder.st_ino == b.folder.st_ino && strcmp(a.name, b.name) == 0;
}

bool output_is_one(const char *one, const char *other)
{
    struct stat a, b;
    const bool is_a = stat(one, &a) == 0, is_b = stat(other, &b) == 0;
    if (!is_a && !is_b) return would_be_one(one, other);
    return is_a && is_b && S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Anything but a plain file (a pipe, /dev/null) is written directly, since it cannot be replaced. So is a file that a
 * descriptor is open for (/dev/stdout): its owner would not see the replacement. Other links stay; the target is what
 * they lead to. *mode: the permissions of the old file, for the new one. */
static bool replaceable(char target[PATH_MAX], mode_t *mode)
{
    struct stat status, descriptors;
    /* The kernel does not follow every link for everyone. Then neither do we, and fopen() reports the reason. */
    if (stat(target, &status) != 0 && errno != ENOENT) return false;
    bool known = stat("/proc/self/fd", &descriptors) == 0;
    for (int links = 0; lstat(target, &status) == 0; links++) {
        *mode = status.st_mode & 0777;
        if (!S_ISLNK(status.st_mode)) return S_ISREG(status.st_mode);
        if (links == LINKS_MAX || (known && status.st_dev == descriptors.st_dev) || !follow(target)) return false;
    }
    if (errno != ENOENT) return false;
    mode_t mask = umask(0);
    umask(mask);
    *mode = 0666 & ~mask;
    return true;
}

static FILE *open_scratch(const char *target, mode_t mode, char *scratch, size_t size)
{
    const char *slash = strrchr(target, '/');
    snprintf(scratch, size, "%.*s" SCRATCH, slash ? (int)(slash + 1 - target) : 0, target);
    int descriptor = mkstemp(scratch);
    if (descriptor < 0) return NULL;

    (void)fchmod(descriptor, mode);
    FILE *stream = fdopen(descriptor, "wb");
    if (!stream) {
        int error = errno;
        close(descriptor);
        unlink(scratch);
        errno = error;
    }
    return stream;
}

static void forget(output_file *file)
{
    atomic_store(&unfinished, NULL);
    free(file->scratch);
    free(file->target);
}

/* The process's own descriptor that a path such as /proc/self/fd/3 names; -1: none. Opened again, a file behind it
 * would be cut, and written from its beginning. */
static int named_descriptor(const char *path)
{
    struct stat folder, descriptors;
    char name[PATH_MAX], *end;
    const char *slash = strrchr(path, '/');
    if (!slash) return -1;
    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
    if (stat(name, &folder) != 0 || stat("/proc/self/fd", &descriptors) != 0) return -1;
    if (folder.st_dev != descriptors.st_dev || folder.st_ino != descriptors.st_ino) return -1;
    const long number = strtol(slash + 1, &end, 10);
    return end != slash + 1 && *end == '\0' ? (int)number : -1;
}

/* `target` is the path, or the first of the links it leads to that cannot be followed. */
static FILE *open_in_place(const char *path, const char *target)
{
    const int named = named_descriptor(target);
    if (named < 0) return fopen(path, "wb");
    const int descriptor = dup(named);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (!stream && descriptor >= 0) close(descriptor);
    return stream;
}

/* Two streams to one place would overwrite each other, or mix. What a device such as /dev/null gets does not matter. */
bool output_is_stdout(const char *path)
{
    struct stat named, standard;
    if (!path) return false;
    if (strcmp(path, "-") == 0) return true;
    if (stat(path, &named) != 0 || fstat(STDOUT_FILENO, &standard) != 0) return false;
    const bool keeps = !S_ISCHR(named.st_mode) || isatty(STDOUT_FILENO);
    return keeps && named.st_dev == standard.st_dev && named.st_ino == standard.st_ino;
}

bool output_open(const char *command, const char *path, output_file *file)
{
    *file = (output_file){ .path = path };
    if (!*path) {
        cli_say(command, "the output's name is empty; name a file, or - for stdout");
        return false;
    }
    if (output_is_stdout(path)) {
        file->stream = stdout;
        return true;
    }
    mode_t mode;
    size_t length = strlen(path);
    file->target = grow_new(PATH_MAX, 1);
    if (length < PATH_MAX && replaceable(memcpy(file->target, path, length), &mode)) {
        size_t size = strlen(file->target) + sizeof SCRATCH;
        file->scratch = grow_new(size, 1);
        watch_ends();
        file->stream = open_scratch(file->target, mode, file->scratch, size);
        if (file->stream) atomic_store(&unfinished, file->scratch);
    } else {
        file->stream = open_in_place(path, file->target);
    }
    if (file->stream) return true;

    cli_say(command, "cannot write %s: %s%s", path, file->scratch ? "cannot create a file beside it: " : "",
            strerror(errno));
    forget(file);
    return false;
}

bool output_commit(const char *command, output_file *file)
{
    bool good = fflush(file->stream) == 0 && !ferror(file->stream);
    int error = errno;
    if (file->stream != stdout && fclose(file->stream) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && file->scratch && rename(file->scratch, file->target) != 0) {
        good = false;
        error = errno;
    }
    if (!good) {
        cli_say(command, "cannot write %s: %s", file->path, strerror(error));
        if (file->scratch) unlink(file->scratch);
    }
    forget(file);
    return good;
}

void output_discard(output_file *file)
{
    if (file->stream != stdout) fclose(file->stream);
    if (file->scratch) unlink(file->scratch);
    forget(file);
}
