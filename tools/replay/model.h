/*
 * model: plays a script against a peer's rules on simulated devices, one peer and one driver for each.
 */
#ifndef WEIR_TOOLS_REPLAY_MODEL_H
#define WEIR_TOOLS_REPLAY_MODEL_H

#include "replay/peers/peer.h"
#include "replay/run.h"

/* Measures a cold pass of the script under the peer, on devices of `device_memory` bytes. A peer of PyTorch's follows
 * the recorded settings, which may be NULL. `refused`: allocations that failed when recorded are tried, and freed at
 * once. Times per operation are NAN, because a model's time says nothing about the original's. */
void model_measure(const script *sc, const trace_settings *recorded, const peer_choice *choice, uint64_t device_memory,
                   bool refused, measurement *out);

#endif
