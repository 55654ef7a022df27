/*
 * stack: a recorded call stack, as JSON and as text. A stack that the trace lacks is empty.
 */
#ifndef WEIR_TOOLS_OUTPUT_STACK_H
#define WEIR_TOOLS_OUTPUT_STACK_H

#include "input/input.h"
#include "output/json.h"

/* Its frames, innermost first. */
json_t *stack_json(const trace_stacks *s, uint32_t stack);

/* Prints the innermost frames, separated by ", " and made safe by text.h. False: there are none. */
bool stack_print(FILE *out, const trace_stacks *s, uint32_t stack);

#endif
