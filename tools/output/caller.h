/*
 * caller: which frames of a recorded stack say who asked. Recorders begin a stack where it was taken, inside themselves, and
 * name compiled code without its place; a line of the program is what people look for.
 * Owner: the caller of caller_ranks, of the array. No locks.
 */
#ifndef WEIR_TOOLS_OUTPUT_CALLER_H
#define WEIR_TOOLS_OUTPUT_CALLER_H

#include "input/input.h"

#define CALLER_SHOWN 6

/* A rank per frame: the higher, the more it says. To be freed. */
uint8_t *caller_ranks(const trace_stacks *s);

/* The innermost frames of the highest rank that the stack has, innermost first. Returns how many; 0: the stack is empty. */
size_t caller_list(const trace_stacks *s, const uint8_t *ranks, uint32_t stack, uint32_t frames[CALLER_SHOWN]);

/* The first of them; "" when the stack is empty. */
const char *caller_first(const trace_stacks *s, const uint8_t *ranks, uint32_t stack);

/* Where the function's name begins in a frame with a file and a line, "train.py:12:step"; the frame itself when it has
 * none. */
const char *caller_function(const char *frame);

#endif
