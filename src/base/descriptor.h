/*
 * descriptor: descriptors that take no standard place. A program that has closed its standard output or error, as
 * daemons do, may still write to it, and so may weir's log: into whatever was opened there since.
 */
#ifndef WR_BASE_DESCRIPTOR_H
#define WR_BASE_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { WR_DESCRIPTOR_LEAST = 3 };

/* What an open() of a file without contents has just returned, moved out of a standard place. It stays where it is if
 * no other is free. What another thread wrote there meanwhile goes; where that cannot be, as in a pipe, it stays. */
static inline int wr_descriptor_moved(int descriptor)
{
    if (descriptor < 0 || descriptor >= WR_DESCRIPTOR_LEAST) return descriptor;
    const int saved = errno, moved = fcntl(descriptor, F_DUPFD_CLOEXEC, WR_DESCRIPTOR_LEAST);
    if (moved >= 0) {
        close(descriptor);
        (void)!ftruncate(moved, 0);
        (void)lseek(moved, 0, SEEK_SET);
    }
    errno = saved;
    return moved >= 0 ? moved : descriptor;
}

#endif
