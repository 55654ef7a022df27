/*
 * stacks: the distinct frames of a snapshot and their distinct stacks, numbered in the order of appearance. Stack 0 is
 * empty.
 * Owner: snapshot.c, for one reading; stacks_finish hands the result over. No locks.
 */
#ifndef WEIR_TOOLS_INPUT_STACKS_H
#define WEIR_TOOLS_INPUT_STACKS_H

#include "pickle.h"

/* A hash index of numbered items. */
typedef struct stack_index {
    uint32_t *slots;  /* 1 + number; 0: free */
    uint64_t *hashes; /* by number */
    size_t slot_count, count, capacity;
} stack_index;

/* NULL: the file does not say. */
typedef struct stack_frame {
    const pickle_string *file, *function;
    uint64_t line;
} stack_frame;

typedef struct stack_table {
    source *s; /* takes the errors */
    stack_frame *frames;
    uint32_t *items; /* the stacks' frames, one stack after the other */
    size_t *first;   /* stack i is items[first[i]] to items[first[i + 1]] */
    size_t frame_capacity, item_count, item_capacity, first_capacity;
    stack_index frame_index, stack_index;
} stack_table;

/* The number of a frame, and of a stack, innermost frame first. False: the source's error is set. */
bool stacks_frame(stack_table *t, stack_frame frame, uint32_t *number);
bool stacks_stack(stack_table *t, const uint32_t *frames, size_t count, uint32_t *number);

/* Hands over all frames, as text, and stacks. Must be called while the frames' strings live. */
bool stacks_finish(const stack_table *t, trace_stacks *out);

void stacks_release(stack_table *t);

#endif
