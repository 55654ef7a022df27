/*
 * ops: adds operations to a part of a script.
 */
#ifndef WEIR_TOOLS_SCRIPT_OPS_H
#define WEIR_TOOLS_SCRIPT_OPS_H

#include "grow.h"
#include "script/script.h"

static inline void script_ops_add(script_ops *ops, script_op op)
{
    ops->at = grow_array(ops->at, ops->count + 1, &ops->capacity, sizeof *ops->at);
    ops->at[ops->count++] = op;
}

#endif
