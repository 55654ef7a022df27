#include "output/caller.h"

#include "grow.h"

#include <string.h>

enum { MACHINERY, NAMED, PLACED, PYTHON };

const char *caller_function(const char *frame)
{
    for (const char *colon = strchr(frame, ':'); colon; colon = strchr(colon + 1, ':')) {
        const size_t digits = strspn(colon + 1, "0123456789");
        if (colon > frame && digits && colon[1 + digits] == ':') return colon + digits + 2;
    }
    return frame;
}

/* Frames that PyTorch's viewer leaves out, and those of allocators. Not "_start", which the viewer leaves out too: it
 * is outermost anyway, and part of many names. */
static bool is_machinery(const char *frame)
{
    static const char *const parts[] = { "unwind::unwind",
                                         "CapturedTraceback::gather",
                                         "gather_with_cpp",
                                         "CachingAllocator",
                                         "__libc_start_main",
                                         "PyEval_",
                                         "PyObject_",
                                         "PyFunction_",
                                         "core/boxing",
                                         "/Register",
                                         "/Redispatch",
                                         "pythonrun.c",
                                         "Modules/main.c",
                                         "Objects/call.c",
                                         "Objects/methodobject.c",
                                         "pycore_ceval.h",
                                         "ceval.c",
                                         "cpython/abstract.h" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(frame, parts[i])) return true;
    return strcmp(frame, "??") == 0;
}

/* A Python file, or code compiled from no file, such as "<string>". */
static bool is_python(const char *frame)
{
    const char *function = caller_function(frame);
    if (function == frame) return false;
    const char *end = function - 1; /* of ":12:" */
    while (*--end != ':') continue;
    return *frame == '<' || (end - frame > 3 && memcmp(end - 3, ".py", 3) == 0);
}

static uint8_t rank_of(const char *frame)
{
    if (is_python(frame)) return PYTHON;
    if (is_machinery(frame)) return MACHINERY;
    return caller_function(frame) == frame ? NAMED : PLACED;
}

uint8_t *caller_ranks(const trace_stacks *s)
{
    uint8_t *ranks = grow_new(s->frame_count, sizeof *ranks);
    for (size_t i = 0; i < s->frame_count; i++) ranks[i] = rank_of(s->frames[i]);
    return ranks;
}

size_t caller_list(const trace_stacks *s, const uint8_t *ranks, uint32_t stack, uint32_t frames[CALLER_SHOWN])
{
    if (stack >= s->count) return 0;
    uint8_t highest = MACHINERY;
    size_t count = 0;
    for (size_t i = s->first[stack]; i < s->first[stack + 1]; i++)
        if (ranks[s->items[i]] > highest) highest = ranks[s->items[i]];
    for (size_t i = s->first[stack]; i < s->first[stack + 1] && count < CALLER_SHOWN; i++)
        if (ranks[s->items[i]] == highest) frames[count++] = s->items[i];
    return count;
}

const char *caller_first(const trace_stacks *s, const uint8_t *ranks, uint32_t stack)
{
    uint32_t frames[CALLER_SHOWN];
    return caller_list(s, ranks, stack, frames) ? s->frames[frames[0]] : "";
}
