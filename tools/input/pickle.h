/*
 * pickle: Python's pickle format, protocols 0 to 5, as far as it is data: a stack machine that builds values and hands
 * the content of its containers to a builder. Nothing is imported, called or executed; opcodes that would are refused.
 *
 * It streams. An item is given away when it is put into its container, and the builder keeps of it what it needs. The
 * memo therefore holds strings, numbers and pairs of numbers; a container taken from the memo is what the builder lets
 * stand for it, or opaque: it was given away already, or is not finished.
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
    PICKLE_TOKEN, /* what the builder lets stand for a container; its `big` is the builder's */
    PICKLE_OPAQUE /* anything else: bytes, other tuples, very long strings and numbers, containers out of the memo */
} pickle_type;

/* Interned: equal strings are one. `id` counts from 1, first the builder's words, then as they come. */
typedef struct pickle_string {
    uint32_t id, length;
    char text[]; /* UTF-8, terminated */
} pickle_string;

typedef struct pickle_pair {
    uint64_t of[2];
} pickle_pair;

typedef struct pickle_value {
    uint32_t type;
    uint32_t tag; /* pickle.c's; in a value that was given away, the builder's */
    union {
        bool boolean;
        int64_t number;
        uint64_t big;
        double real;
        const pickle_string *string;
        const pickle_pair *pair;
        void *node; /* LIST, DICT: the builder's; NULL until it first keeps something */
    };
} pickle_value;

/* What becomes of the containers. Each function owns the values that it is given; false means that the source's error
 * is set. */
typedef struct pickle_builder {
    const char *const *words; /* strings whose ids are 1 to word_count */
    uint32_t word_count;
    void *user;
    bool (*set)(void *user, void **dict, pickle_value key, pickle_value value);
    bool (*append)(void *user, void **list, pickle_value item);
    /* A finished LIST or DICT with a node, which stays the caller's, may be met again: *token stands for it then. */
    bool (*token)(void *user, pickle_value container, pickle_value *token);
    bool (*result)(void *user, pickle_value value); /* what the pickle is; drop comes after */
    void (*drop)(void *user, pickle_value value);   /* a LIST or DICT with a node */
} pickle_builder;

/* limits->memo bounds the memo, limits->stack the stack, limits->depth the open marks, limits->string_bytes each string and
 * all distinct ones together. */
bool pickle_read(source *s, const trace_limits *limits, const pickle_builder *builder);

/* False: not a number, or negative. */
static inline bool pickle_u64(pickle_value value, uint64_t *out)
{
    *out = value.type == PICKLE_INT ? (uint64_t)value.number : value.big;
    return value.type == PICKLE_UINT || (value.type == PICKLE_INT && value.number >= 0);
}

#endif
