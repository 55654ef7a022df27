/*
 * order: the orders in which production systems place blocks. Each suits some programs.
 */
#ifndef WEIR_TOOLS_PLAN_ORDER_H
#define WEIR_TOOLS_PLAN_ORDER_H

#include "plan/parts.h"

typedef enum order_kind {
    ORDER_SIZE, /* the largest first, as XLA and TensorFlow Lite do */
    ORDER_LIFE, /* the longest lived first */
    ORDER_AREA, /* bytes times sections */
    ORDER_PEAK, /* nearest to the fullest section, then the largest */
    ORDER_START /* as allocated, like an allocator that cannot see the future */
} order_kind;
enum { ORDERS = ORDER_START + 1 };

/* The part's blocks, ordered, in out[0 .. part->count). */
void order_blocks(const layout *l, const part *p, const uint64_t *load, order_kind kind, uint32_t *out);

/* Orders the blocks by weight, the largest first, stably. `weight` is indexed by the layout's blocks. */
void order_by(uint32_t *blocks, size_t count, const double *weight);

/* The same by offset, the smallest first. */
void order_by_offset(uint32_t *blocks, size_t count, const uint64_t *offset);

#endif
