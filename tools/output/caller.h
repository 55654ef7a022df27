/*
 * caller: which frames of a recorded stack say who asked for memory. Recorded stacks begin inside the recorder, and
 * name compiled code without its place; people look for a line of the program.
 * Owner: the caller of caller_ranks owns the array. No locks.
 */
#ifndef WEIR_TOOLS_OUTPUT_CALLER_H
#define WEIR_TOOLS_OUTPUT_CALLER_H

#include "input/input.h"

#define CALLER_SHOWN 6

/* A rank for each frame: the higher, the more it says. The caller frees the array. */
uint8_t *caller_ranks(const trace_stacks *s);

/* The innermost frames of the highest rank in the stack, innermost first. Returns how many; 0: the stack is empty. */
size_t caller_list(const trace_stacks *s, const uint8_t *ranks, uint32_t stack, uint32_t frames[CALLER_SHOWN]);

/* The first of these frames; "" when the stack is empty. */
const char *caller_first(const trace_stacks *s, const uint8_t *ranks, uint32_t stack);

/* Where the function's name begins in a frame such as "train.py:12:step"; the whole frame without file and line. */
const char *caller_function(const char *frame);

#endif
