/*
 * To be preloaded: lets one allocation fail, that of number SHORT_AT from 1 on. SHORT_COUNT names a file that gets how
 * many there were. glibc's malloc() is called by its other names, so this is for glibc alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

typedef int entry(int argc, char **argv, char **environment);
int __libc_start_main(entry *main, int argc, char **argv, entry *init, void (*fini)(void), void (*loader_fini)(void),
                      void *stack_end);

static atomic_ulong made, short_at;
static entry *command;

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

static void end(void)
{
    const char *path = getenv("SHORT_COUNT");
    const unsigned long count = atomic_load(&made);
    atomic_store(&short_at, 0);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", count);
    fclose(file);
}

/* The allocations of the loader and of constructors are not the command's, nor are those of destructors: gcov's trusts
 * malloc(). What is registered from here on runs before those. */
static int start(int argc, char **argv, char **environment)
{
    const char *at = getenv("SHORT_AT");
    atexit(end);
    atomic_store(&short_at, at ? strtoul(at, NULL, 10) : 0);
    atomic_store(&made, 0);
    return command(argc, argv, environment);
}

int __libc_start_main(entry *main, int argc, char **argv, entry *init, void (*fini)(void), void (*loader_fini)(void),
                      void *stack_end)
{
    __typeof__(&__libc_start_main) next;
    *(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
    command = main;
    return next(start, argc, argv, init, fini, loader_fini, stack_end);
}
