#include "output/file.h"

#include "cli.h"
#include "grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is not a plain file (a pipe, /dev/null) cannot be replaced and is written as it is. */
static bool replaceable(const char *path)
{
    struct stat status;
    return lstat(path, &status) != 0 || S_ISREG(status.st_mode);
}

static FILE *open_scratch(const char *path, char *scratch, size_t size)
{
    snprintf(scratch, size, "%s.XXXXXX", path);
    int descriptor = mkstemp(scratch);
    if (descriptor < 0) return NULL;

    mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(descriptor, 0666 & ~mask);
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
    if (replaceable(path)) {
        size_t size = strlen(path) + sizeof ".XXXXXX";
        file->scratch = grow_new(size, 1);
        file->stream = open_scratch(path, file->scratch, size);
    } else {
        file->stream = fopen(path, "wb");
    }
    if (file->stream) return true;

    cli_say(command, "cannot write %s: %s", path, strerror(errno));
    free(file->scratch);
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
    if (good && file->scratch && rename(file->scratch, file->path) != 0) {
        good = false;
        error = errno;
    }
    if (!good) {
        cli_say(command, "cannot write %s: %s", file->path, strerror(error));
        if (file->scratch) unlink(file->scratch);
    }
    free(file->scratch);
    return good;
}

void output_discard(output_file *file)
{
    if (file->stream != stdout) fclose(file->stream);
    if (file->scratch) unlink(file->scratch);
    free(file->scratch);
}
