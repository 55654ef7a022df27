/*
 * snapshot_token: what stands for a frame, a stack or an empty list of a snapshot where the pickle refers to it again.
 */
#ifndef WEIR_TOOLS_INPUT_SNAPSHOT_TOKEN_H
#define WEIR_TOOLS_INPUT_SNAPSHOT_TOKEN_H

#include "pickle.h"

typedef enum token_kind { TOKEN_FRAME, TOKEN_STACK, TOKEN_EMPTY, TOKEN_KINDS } token_kind;

/* The number is that of the frame or stack. */
static inline pickle_value make_token(token_kind kind, uint32_t number)
{
    return (pickle_value){ .type = PICKLE_TOKEN, .big = (uint64_t)number * TOKEN_KINDS + kind };
}

static inline bool is_token(const pickle_value *value, token_kind kind)
{
    return value->type == PICKLE_TOKEN && value->big % TOKEN_KINDS == kind;
}

static inline uint32_t token_number(const pickle_value *value)
{
    return (uint32_t)(value->big / TOKEN_KINDS);
}

#endif
