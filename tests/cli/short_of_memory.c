/*
 * To be preloaded: lets one allocation fail, that of number SHORT_AT from 1 on. SHORT_COUNT names a file that gets how
 * many there were. glibc's malloc() is called by its other names, so this is for glibc alone.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

static atomic_ulong made, short_at;

static bool is_short(void)
{
    if (atomic_fetch_add(&made, 1) + 1 != atomic_load(&short_at)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return is_short() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_short() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return is_short() ? NULL : __libc_realloc(memory, bytes);
}

/* The allocations of the loader and of libraries that begin before are not the command's. */
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("SHORT_AT");
    atomic_store(&short_at, at ? strtoul(at, NULL, 10) : 0);
    atomic_store(&made, 0);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("SHORT_COUNT");
    const unsigned long count = atomic_load(&made);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", count);
    fclose(file);
}
