/*
 * stacks: call stacks by number, each distinct one kept once. A number costs 4 bytes wherever it is noted, and
 * identifies the program's call in which something happened. Addresses get names only when they are read.
 * Owner: the process; there is one table, of constant size, from when stacks are first wanted to closing the library.
 * Reading it, and finding a stack that is in it, takes no lock; adding one takes the table's (WR_RANK_LEAF).
 */
#ifndef WR_OBSERVE_STACKS_H
#define WR_OBSERVE_STACKS_H

#include "base/compiler.h"
#include "base/status.h"
#include "weir/trace.h"

#include <stdint.h>

typedef struct wr_stack {
    uint64_t hash;
    uint32_t count;
    void *frames[]; /* return addresses, or frames of the program's source of stacks; innermost first */
} wr_stack;

/* Makes the table, unless there is one, for `kept` stacks. Stacks have up to `frames` frames from now on, the innermost
 * ones. 0 frames: no table is made, and without one every stack is 0. Under the runtime's lock. */
WR_CHECKED weir_status wr_stacks_open(uint32_t frames, uint64_t kept);
void wr_stacks_close(void);

/* The number of a stack, from 1; 0: there is no room, and the stack is counted as lost. */
uint32_t wr_stacks_number(void *const *frames, uint32_t count);

/* Where stacks come from first; false: from another one already. */
bool wr_stacks_from(const weir_stack_source *source);

/* The number of the calling thread's stack from `caller` outwards, a return address on it: frames further in are weir's
 * own. */
uint32_t wr_stacks_take(const void *caller);

/* NULL for 0. */
const wr_stack *wr_stacks_find(uint32_t number);

/* How many stacks found no room. */
uint64_t wr_stacks_lost(void);

/* All numbers are below this; 0: there is no table. */
uint32_t wr_stacks_end(void);

/* The stack of the weir call that the thread is in; 0: not known. */
extern WR_THREAD_LOCAL uint32_t wr_stack_now;

/* Where in the program a frame is. The texts belong to the loader or the program; NULL: it does not know. */
typedef struct wr_frame {
    const char *object, *symbol; /* the object's path; an exported function. Or the source's path; a function */
    uint64_t in_object, in_symbol;
    bool is_source;
    uint64_t line; /* of the source; 0: not known */
} wr_frame;

wr_frame wr_frame_of(const void *frame);

#endif
