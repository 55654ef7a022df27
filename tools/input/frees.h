/*
 * frees: PyTorch's recorder can be told to leave actions out (skip_actions). A free is a request and a completion.
 * Where one of them was left out, the other stands for both, as if the block had been available at once.
 */
#ifndef WEIR_TOOLS_INPUT_FREES_H
#define WEIR_TOOLS_INPUT_FREES_H

#include "input.h"
#include "source.h"

/* Adds a completion after each request of a device that has no completions, and a request before each completion of a
 * device that has no requests, unless all of these are of blocks from before the first event. A block that the trace
 * lists as pending at the end gets no completion. The live blocks are sorted by device, then address. False: the error
 * is set. */
bool frees_pair(source *s, const trace_limits *limits, trace *t);

#endif
