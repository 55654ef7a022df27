#include "output/file.h"

#include "cli.h"
#include "grow.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what a signal must not leave behind ---------------------------------------------------------------------------- */

static _Atomic(const char *) unfinished; /* a file's name */

/* A second signal, maybe in another thread, does not end the process before the first one's handler is done. */
static void leave_nothing(int number)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&begun)) return;
    const char *path = atomic_load(&unfinished);
    if (path) unlink(path);
    signal(number, SIG_DFL);
    raise(number);
}

/* What the caller ignores stays ignored. A file that becomes too large is an error of the write. */
static void watch_signals(void)
{
    static const int ending[] = { SIGHUP, SIGINT, SIGTERM };
    static bool watching;
    if (watching) return;
    watching = true;
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction old, ours = { .sa_handler = leave_nothing };
        if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) (void)sigaction(ending[i], &ours, NULL);
    }
}

/* ---- files ---------------------------------------------------------------------------------------------------------- */

/* What is not a plain file (a pipe, /dev/null) cannot be replaced and is written as it is. Who may read what is there may read
 * what replaces it: *mode. */
static bool replaceable(const char *path, mode_t *mode)
{
    struct stat status;
    if (lstat(path, &status) == 0) {
        *mode = status.st_mode & 0777;
        return S_ISREG(status.st_mode);
    }
    mode_t mask = umask(0);
    umask(mask);
    *mode = 0666 & ~mask;
    return true;
}

static FILE *open_scratch(const char *path, mode_t mode, char *scratch, size_t size)
{
    snprintf(scratch, size, "%s.XXXXXX", path);
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

bool output_is_stdout(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

bool output_open(const char *command, const char *path, output_file *file)
{
    *file = (output_file){ .path = path };
    if (output_is_stdout(path)) {
        file->stream = stdout;
        return true;
    }
    mode_t mode;
    if (replaceable(path, &mode)) {
        size_t size = strlen(path) + sizeof ".XXXXXX";
        file->scratch = grow_new(size, 1);
        watch_signals();
        file->stream = open_scratch(path, mode, file->scratch, size);
        if (file->stream) atomic_store(&unfinished, file->scratch);
    } else {
        file->stream = fopen(path, "wb");
    }
    if (file->stream) return true;

    cli_say(command, "cannot write %s: %s", path, strerror(errno));
    free(file->scratch);
    return false;
}

static void forget(output_file *file)
{
    atomic_store(&unfinished, NULL);
    free(file->scratch);
}

bool output_commit(const char *command, output_file *file)
{
    bool good = fflush(file->stream) == 0 && !ferror(file->stream);
    int error = errno;
    if (file->stream != stdout && fclose(file->stream) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && file->scratch && rename(file->scratch, file->path) != 0) {
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
