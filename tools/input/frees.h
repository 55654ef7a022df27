/*
 * frees: PyTorch's recorder can be told to leave actions out (skip_actions). Where it left out one half of what a free is, the
 * other half stands for both: for all that is known the block was free at once.
 */
#ifndef WEIR_TOOLS_INPUT_FREES_H
#define WEIR_TOOLS_INPUT_FREES_H

#include "input.h"
#include "source.h"

/* Puts a completion behind each request of a device that has no completions, and a request before each completion of one that
 * has no requests. What the trace lists as waiting at the end was asked for and not completed. The live blocks are sorted by
 * device, then address. False: the error is set. */
bool frees_pair(source *s, const trace_limits *limits, trace *t);

#endif
