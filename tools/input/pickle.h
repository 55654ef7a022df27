/*
 * pickle: Python's pickle format, protocols 0 to 5, reduced to data: a stack machine that builds values and hands the
 * content of containers to a builder. Nothing is imported, called or executed; opcodes that would do so are refused.
 *
 * It streams. An item passes to the builder when it is put into its container, and the builder keeps what it needs of
 * it. So the memo holds only strings, numbers and pairs of numbers. A container taken from the memo is the builder's
 * token for it, or opaque, since it was passed on already or is not finished.
 * Owner: one pickle_read. Strings and pairs live until it returns. No locks.
 */
#ifndef WEIR_TOOLS_INPUT_PICKLE_H
#define WEIR_TOOLS_INPUT_PICKLE_H

#include "source.h"

typedef enum pickle_type {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,  /* fits int64_t */
    PICKLE_UINT, /* 2^63 and more, fits uint64_t */
    PICKLE_FLOAT,
    PICKLE_STRING,
    PICKLE_PAIR, /* a tuple of two numbers that fit uint64_t */
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_SET,
    PICKLE_TOKEN,  /* the builder's stand-in for a container; `big` is the builder's */
    PICKLE_SHARED, /* a LIST or DICT from the memo that has no token */
    PICKLE_OPAQUE  /* anything else: bytes, other tuples, very long strings and numbers */
} pickle_type;

/* Interned, so equal strings are one object. `id` counts from 1: the builder's words, then others as they appear. */
typedef struct pickle_string {
    uint32_t id, length;
    char text[]; /* UTF-8, terminated */
} pickle_string;

typedef struct pickle_pair {
    uint64_t of[2];
} pickle_pair;

typedef struct pickle_value {
    uint32_t type;
    uint32_t tag; /* pickle.c's; after the value was passed on, the builder's */
    union {
        bool boolean;
        int64_t number;
        uint64_t big;
        double real;
        const pickle_string *string;
        const pickle_pair *pair;
        void *node; /* LIST, DICT: the builder's; NULL until it keeps something */
    };
} pickle_value;

/* Receives the contents of containers. Each function owns the values that it is given; false means that the source's
 * error is set. */
typedef struct pickle_builder {
    const char *const *words; /* strings whose ids are 1 to word_count */
    uint32_t word_count;
    void *user;
    bool (*set)(void *user, void **dict, pickle_value key, pickle_value value);
    bool (*append)(void *user, void **list, pickle_value item);
    /* A finished LIST or DICT with a node, still the caller's, may be referred to again: *token then stands for it. */
    bool (*token)(void *user, pickle_value container, pickle_value *token);
    bool (*result)(void *user, pickle_value value); /* the pickle's top value; drop is called afterwards */
    void (*drop)(void *user, pickle_value value);   /* a LIST or DICT with a node */
} pickle_builder;

/* limits->memo bounds the memo, limits->stack the stack, limits->depth the open marks, limits->string_bytes each string
 * and all distinct ones together. */
bool pickle_read(source *s, const trace_limits *limits, const pickle_builder *builder);

/* False: not a number, or negative. */
static inline bool pickle_u64(pickle_value value, uint64_t *out)
{
    *out = value.type == PICKLE_INT ? (uint64_t)value.number : value.big;
    return value.type == PICKLE_UINT || (value.type == PICKLE_INT && value.number >= 0);
}

#endif
