/*
 * To be preloaded: pages of 64 KiB, as kernels for aarch64 may have. Like such a kernel it refuses a start inside a
 * page, and rounds lengths up.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)65536)

static size_t whole(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int refuse(void)
{
    errno = EINVAL;
    return -1;
}

long sysconf(int name)
{
    long (*next)(int) = NULL;
    void *found = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&next, &found, sizeof next);
    return name == _SC_PAGESIZE ? (long)PAGE : next(name);
}

int mprotect(void *start, size_t bytes, int access)
{
    return (uintptr_t)start % PAGE ? refuse() : (int)syscall(SYS_mprotect, start, whole(bytes), access);
}

int munmap(void *start, size_t bytes)
{
    return (uintptr_t)start % PAGE ? refuse() : (int)syscall(SYS_munmap, start, whole(bytes));
}

static void *map(void *start, size_t bytes, int access, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, start, bytes, access, flags, file, offset); /* NOLINT(performance-no-int-to-ptr) */
}

/* Where the system chooses the place, it reserves a page too much, whose ends go back. */
void *mmap(void *start, size_t bytes, int access, int flags, int file, off_t offset)
{
    bytes = whole(bytes);
    if (flags & MAP_FIXED) {
        if ((uintptr_t)start % PAGE == 0) return map(start, bytes, access, flags, file, offset);
        (void)refuse();
        return MAP_FAILED;
    }
    char *reserved = map(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return MAP_FAILED;
    const size_t before = whole((uintptr_t)reserved) - (uintptr_t)reserved;
    if (before) (void)syscall(SYS_munmap, reserved, before);
    if (before < PAGE) (void)syscall(SYS_munmap, reserved + before + bytes, PAGE - before);
    void *mapped = map(reserved + before, bytes, access, flags | MAP_FIXED, file, offset);
    if (mapped == MAP_FAILED) (void)syscall(SYS_munmap, reserved + before, bytes);
    return mapped;
}
