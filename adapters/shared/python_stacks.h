/*
 * python_stacks: the lines of Python that a thread runs, as the call stacks that weir records: without them stacks are
 * of the interpreter's own functions. A line is known by its code object and the place in it, each kept for good, so
 * that no other code object has that address; 262,144 are, and a stack ends before a line beyond those. Where the
 * process has further interpreters, stacks are of machine code.
 * Owner: the process, since what was recorded names lines. Lock: one for finding and adding lines, not held while the
 * interpreter is called. Whoever calls weir may be waiting for the interpreter's lock (the GIL) then, as in PyTorch
 * with recorded stacks.
 */
#ifndef WEIR_ADAPTERS_PYTHON_STACKS_H
#define WEIR_ADAPTERS_PYTHON_STACKS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Has weir's stacks be of Python's lines wherever a thread runs some. Needs CPython 3.9 or later in the process.
 * WEIR_ERR_NOT_SUPPORTED without, WEIR_ERR_BUSY when stacks come from elsewhere, WEIR_ERR_OUT_OF_HOST_MEMORY. */
WEIR_API weir_status weir_python_stacks(void);

/* The interpreter must not be called any more. What was recorded keeps its lines. */
WEIR_API void weir_python_stacks_end(void);

#ifdef __cplusplus
}
#endif
#endif
