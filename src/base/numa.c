#include "base/numa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *pretended;
static int pretended_error;

void wr_numa_pretend(const char *nodes, int error)
{
    pretended = nodes;
    pretended_error = error;
}

static void add(wr_numa *numa, long first, long last)
{
    for (long n = first; n <= last && n < WR_NUMA_NODES; n++) {
        if (wr_numa_has(numa, (int)n)) continue;
        numa->present[n / 64] |= (uint64_t)1 << (n % 64);
        numa->count++;
    }
}

/* "0-1,4", as the kernel writes it; stops at anything else. */
static void parse(const char *list, wr_numa *numa)
{
    char *end = NULL;
    for (const char *at = list; *at >= '0' && *at <= '9'; at = *end == ',' ? end + 1 : end) {
        const long first = strtol(at, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        add(numa, first, last);
    }
}

void wr_numa_read(wr_numa *out)
{
    char list[1024] = "";
    *out = (wr_numa){ 0 };
    FILE *file = pretended ? NULL : fopen("/sys/devices/system/node/has_memory", "re");
    if (file) {
        if (!fgets(list, sizeof list, file)) list[0] = '\0';
        fclose(file);
    }
    parse(pretended ? pretended : list, out);
    if (out->count == 0) add(out, 0, 0);
}

static int bind_pages(void *base, size_t bytes, int node)
{
    enum { BIND = 2 /* MPOL_BIND */, WORD = 8 * sizeof(unsigned long) };
    unsigned long mask[WR_NUMA_NODES / WORD] = { 0 };
    if (pretended) return pretended_error;
    mask[node / WORD] = 1ul << (node % WORD);
    /* The kernel reads one bit less than it is told. */
    return syscall(SYS_mbind, base, bytes, BIND, mask, (unsigned long)WR_NUMA_NODES + 1, 0u) == 0 ? 0 : errno;
}

weir_status wr_numa_bind(void *base, size_t bytes, int node)
{
    const int error = bind_pages(base, bytes, node);
    if (error == 0) return WEIR_OK;
    const bool forbidden = error == ENOSYS || error == EPERM || error == EINVAL; /* the node is not in the cpuset */
    return wr_fail_native(forbidden ? WEIR_ERR_NOT_SUPPORTED : WEIR_ERR_OUT_OF_MEMORY, "linux", error,
                          "mbind of %zu bytes to NUMA node %d: %s%s", bytes, node, strerror(error),
                          forbidden ? "; this process may not place memory, use WEIR_NUMA_ANY" : "");
}
