/*
 * stacks: call stacks by number, each distinct one kept once. A number costs 4 bytes wherever it is noted, and says which
 * call of the program something happened in. What the addresses are called is asked when somebody reads.
 * Owner: the process; there is one table, from opening the library to closing it, of a size that never changes. Reading it,
 * and finding a stack that is in it, takes no lock; adding one takes the table's (WR_RANK_LEAF).
 */
#ifndef WR_OBSERVE_STACKS_H
#define WR_OBSERVE_STACKS_H

#include "base/compiler.h"
#include "base/status.h"

#include <stdint.h>

#define WR_STACK_FRAMES 64 /* of a stack, at most */

typedef struct wr_stack {
    uint64_t hash;
    uint32_t count;
    void *frames[]; /* return addresses, innermost first */
} wr_stack;

/* The table for so many stacks of up to so many frames, the innermost ones; 0 frames: none, and then every stack is 0. */
WR_CHECKED weir_status wr_stacks_open(uint32_t frames, uint64_t kept);
void wr_stacks_close(void);

/* The number of a stack, from 1; 0: there is no room, which is counted. */
uint32_t wr_stacks_number(void *const *frames, uint32_t count);

/* The number of the calling thread's stack from `caller` on, which is a return address of a function that it is in: what
 * is further in is weir's own. */
uint32_t wr_stacks_take(const void *caller);

/* NULL for 0. */
const wr_stack *wr_stacks_find(uint32_t number);

/* Stacks that found no room. */
uint64_t wr_stacks_lost(void);

/* All numbers are below this. */
uint32_t wr_stacks_end(void);

/* The stack of the call of weir's that the thread is in; 0: not known. */
extern WR_THREAD_LOCAL uint32_t wr_stack_now;

/* Where in a program a return address is. The texts are the loader's; NULL: it does not know. */
typedef struct wr_frame {
    const char *object, *symbol; /* the object's path; an exported function */
    uint64_t in_object, in_symbol;
} wr_frame;

wr_frame wr_frame_of(const void *return_address);

#endif
