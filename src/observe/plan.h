/*
 * plan: reads and writes plan files. Plain data, no lock; docs/plan-format.md is the specification.
 * Owner: the caller, until wr_plan_destroy.
 */
#ifndef WR_OBSERVE_PLAN_H
#define WR_OBSERVE_PLAN_H

#include "base/compiler.h"
#include "weir/plan.h"

/* As weir_plan_decode and so on. */
WR_CHECKED weir_status wr_plan_decode(const uint8_t *bytes, size_t count, weir_plan **plan);
void wr_plan_destroy(weir_plan *plan);

/* The size of the plan's file. */
uint64_t wr_plan_bytes(const weir_plan *plan);

/* Writes wr_plan_bytes() bytes. */
void wr_plan_encode(const weir_plan *plan, uint8_t *bytes);

#endif
