#include "backend/workspace.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static const size_t MOST = 64 * WR_GIB;

static bool read_number(const char **at, size_t *number)
{
    char *end = NULL;
    if (**at < '0' || **at > '9') return false;
    *number = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

bool wr_workspace_read(const char *value, size_t *bytes)
{
    size_t kib = 0, pieces = 0, pair = 0;
    bool any = false;
    *bytes = 0;
    for (const char *at = strchr(value, ':'); at; at = strchr(at, ':')) {
        at++;
        if (!read_number(&at, &kib) || *at != ':') continue;
        const char *second = at + 1;
        if (!read_number(&second, &pieces)) continue;
        at = second;
        any = true;
        if (__builtin_mul_overflow(kib, pieces, &pair) || __builtin_mul_overflow(pair, (size_t)WR_KIB, &pair) ||
            __builtin_add_overflow(*bytes, pair, bytes))
            return false;
    }
    return any && *bytes <= MOST;
}
