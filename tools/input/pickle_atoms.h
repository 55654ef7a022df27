/*
 * pickle_atoms: the values that a pickle's memo refers to: distinct strings, pairs and tokens, interned; single
 * numbers; and one opaque stand-in per type of container. An atom is an index into `values`. Owner: one pickle_read. No
 * locks.
 */
#ifndef WEIR_TOOLS_INPUT_PICKLE_ATOMS_H
#define WEIR_TOOLS_INPUT_PICKLE_ATOMS_H

#include "pickle.h"

/* Longer strings are opaque: no name or setting that matters is longer. */
#define ATOM_STRING_MAX ((size_t)4096)

enum {
    ATOM_UNSET, /* an empty memo slot */
    ATOM_LIST,
    ATOM_DICT,
    ATOM_SET,
    ATOM_TUPLE,
    ATOM_BYTES,
    ATOM_LONG_STRING,
    ATOM_WIDE_NUMBER,
    ATOM_FIXED_COUNT
};

struct atom_chunk;

typedef struct atom_table {
    source *s; /* takes the errors */
    const trace_limits *limits;
    pickle_value *values; /* by atom; each value's tag is its own index */
    size_t count, capacity;
    uint32_t *slots; /* hash table of atoms, open addressing; ATOM_UNSET: free */
    size_t slot_count, slots_used;
    uint64_t string_bytes;
    uint32_t strings;
    struct atom_chunk *chunks;
} atom_table;

bool atoms_init(atom_table *t, source *s, const trace_limits *limits);
void atoms_release(atom_table *t);

/* length <= ATOM_STRING_MAX */
bool atoms_string(atom_table *t, const void *text, size_t length, pickle_value *out);
bool atoms_pair(atom_table *t, uint64_t first, uint64_t second, pickle_value *out);
bool atoms_token(atom_table *t, pickle_value token, uint32_t *atom);
bool atoms_scalar(atom_table *t, pickle_value value, uint32_t *atom);

#endif
