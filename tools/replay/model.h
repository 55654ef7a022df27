/*
 * model: plays a script against a peer's rules on simulated devices, one peer and one driver for each.
 */
#ifndef WEIR_TOOLS_REPLAY_MODEL_H
#define WEIR_TOOLS_REPLAY_MODEL_H

#include "replay/peers/peer.h"
#include "replay/run.h"

/* What the script costs under the peer: the cold pass, on devices of so many bytes. A peer of PyTorch's goes by the recorded
 * settings, which may be NULL. `refused`: what failed when recorded is asked for, and freed at once. Times per operation
 * are NAN, because a model's say nothing of its original's. */
void model_measure(const script *sc, const trace_settings *recorded, const peer_choice *choice, uint64_t device_memory,
                   bool refused, measurement *out);

#endif
