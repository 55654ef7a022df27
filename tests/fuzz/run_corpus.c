/*
 * run_corpus: the main function of a fuzzer without libFuzzer. Runs each of the given files, and each file of the given
 * folders, once, so that seeds and past findings serve as a regression test with any compiler.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned ran;

/* Name of the input being run, printed by whoever looks at a crash: it is the last line of the output. */
static int run_file(const char *path, FILE *file)
{
    uint8_t *data = NULL;
    size_t size = 0, capacity = 0;
    for (;;) {
        if (size == capacity) {
            capacity = capacity ? capacity * 2 : 4096;
            uint8_t *grown = realloc(data, capacity);
            if (!grown) break;
            data = grown;
        }
        size_t got = fread(data + size, 1, capacity - size, file);
        if (got == 0) break;
        size += got;
    }
    if (ferror(file) || !feof(file)) {
        fprintf(stderr, "%s: cannot be read whole\n", path);
        free(data);
        return 1;
    }
    printf("%s\n", path);
    fflush(stdout);
    /* A copy of exactly the size, so that a sanitizer sees a read past the end. */
    uint8_t *exact = malloc(size ? size : 1);
    if (exact) {
        if (size) memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        ran++;
    }
    free(data);
    int status = exact ? 0 : 1;
    free(exact);
    return status;
}

static int run_path(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        FILE *file = errno == ENOTDIR ? fopen(path, "rb") : NULL;
        if (!file) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            return 1;
        }
        int status = run_file(path, file);
        fclose(file);
        return status;
    }
    int status = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        status |= run_path(name);
    }
    closedir(folder);
    return status;
}

int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 1; i < argc; i++) status |= run_path(argv[i]);
    if (ran == 0) {
        fprintf(stderr, "no input was run\n");
        return 1;
    }
    printf("%u inputs\n", ran);
    return status;
}
