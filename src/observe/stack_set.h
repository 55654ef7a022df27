/*
 * stack_set: the stacks that a file mentions, renumbered from 1 in order of first mention, and their distinct frames.
 * Plain data. Owner: the writer of the file. No lock.
 */
#ifndef WR_OBSERVE_STACK_SET_H
#define WR_OBSERVE_STACK_SET_H

#include "observe/stacks.h"

#include <stddef.h>

typedef struct wr_stack_set {
    /* By the number in the process's table: the number here; 0: not mentioned. NULL: no stacks are kept */
    uint32_t *number;
    size_t number_bytes;
    const wr_stack **stacks; /* number 1 is the first */
    uint32_t count, capacity;
    void **frames; /* distinct ones, by address; filled at the end */
    uint32_t frame_count;
} wr_stack_set;

/* If any of these fails, release the set. A set that is all zero may be released too. */
WR_CHECKED weir_status wr_stack_set_begin(wr_stack_set *set);
WR_CHECKED weir_status wr_stack_set_mention(wr_stack_set *set, uint32_t stack);
WR_CHECKED weir_status wr_stack_set_end(wr_stack_set *set);
void wr_stack_set_release(wr_stack_set *set);

/* The number here of a stack of the process's table; 0: no stack, or not mentioned. */
static inline uint32_t wr_stack_set_number(const wr_stack_set *set, uint32_t stack)
{
    return set->number && stack ? set->number[stack] : 0;
}

/* The index of a frame among the distinct ones. */
uint32_t wr_stack_set_frame(const wr_stack_set *set, const void *frame);

/* Names are cut to fit. */
#define WR_FRAME_NAME 1024

/* "solve+0x1d", a place in a function; "0x4c1d", for addr2line, if the object does not name the function. In a source
 * "step", the function. */
void wr_frame_name(const wr_frame *frame, char name[WR_FRAME_NAME]);

#endif
