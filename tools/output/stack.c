#include "output/stack.h"

#include "output/text.h"

enum { SHOWN = 6 };

json_t *stack_json(const trace_stacks *s, uint32_t stack)
{
    json_t *array = json_array();
    if (stack >= s->count) return array;
    for (size_t i = s->first[stack]; i < s->first[stack + 1]; i++) json_push(array, json_text(s->frames[s->items[i]]));
    return array;
}

bool stack_print(FILE *out, const trace_stacks *s, uint32_t stack)
{
    if (stack >= s->count || s->first[stack] == s->first[stack + 1]) return false;
    const size_t first = s->first[stack], end = s->first[stack + 1];
    for (size_t i = first; i < end && i < first + SHOWN; i++) {
        if (i > first) fputs(", ", out);
        text_print(out, s->frames[s->items[i]]);
    }
    if (end - first > SHOWN) fputs(", ...", out);
    return true;
}
