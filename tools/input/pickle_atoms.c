#include "pickle_atoms.h"

#include "grow.h"

#include <inttypes.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 * 1024)

struct atom_chunk {
    struct atom_chunk *next;
    size_t used;
    _Alignas(8) uint8_t bytes[];
};

static void *chunk_alloc(atom_table *t, size_t bytes)
{
    bytes = (bytes + 7) & ~(size_t)7;
    if (!t->chunks || CHUNK_BYTES - t->chunks->used < bytes) {
        struct atom_chunk *fresh = malloc(sizeof *fresh + CHUNK_BYTES);
        if (!fresh) return NULL;
        fresh->next = t->chunks;
        fresh->used = 0;
        t->chunks = fresh;
    }
    void *memory = t->chunks->bytes + t->chunks->used;
    t->chunks->used += bytes;
    return memory;
}

/* The table uses the low bits, but a multiplication mixes the high ones best: shifts them down. */
static uint64_t mix(uint64_t hash)
{
    return (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u >> 16;
}

/* FNV-1a */
static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return mix(hash);
}

static uint64_t hash_pair(uint64_t first, uint64_t second)
{
    return mix(mix(first) + second);
}

static uint64_t hash_value(pickle_value value)
{
    if (value.type == PICKLE_STRING) return hash_text(value.string->text, value.string->length);
    if (value.type == PICKLE_TOKEN) return mix(value.big);
    return hash_pair(value.pair->of[0], value.pair->of[1]);
}

static bool equals(pickle_value value, uint32_t type, const void *bytes, size_t length)
{
    if (value.type != type) return false;
    if (type == PICKLE_PAIR) return memcmp(value.pair, bytes, length) == 0;
    if (type == PICKLE_TOKEN) return memcmp(&value.big, bytes, length) == 0;
    return value.string->length == length && memcmp(value.string->text, bytes, length) == 0;
}

static bool rehash(atom_table *t)
{
    size_t wanted = t->slot_count ? t->slot_count * 2 : 1024;
    uint32_t *slots = calloc(wanted, sizeof *slots);
    if (!slots) return source_fail_memory(t->s);
    for (size_t i = 0; i < t->slot_count; i++) {
        if (t->slots[i] == ATOM_UNSET) continue;
        size_t at = hash_value(t->values[t->slots[i]]) & (wanted - 1);
        while (slots[at] != ATOM_UNSET) at = (at + 1) & (wanted - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->slot_count = wanted;
    return true;
}

static bool add(atom_table *t, pickle_value value, uint32_t *atom)
{
    uint64_t limit = t->limits->memo < UINT32_MAX - 64 ? t->limits->memo + 64 : UINT32_MAX;
    if (t->count >= limit)
        return source_fail(t->s, source_offset(t->s), "more than %" PRIu64 " distinct values, the limit",
                           t->limits->memo);
    if (!grow_try((void **)&t->values, &t->capacity, t->count + 1, sizeof *t->values)) return source_fail_memory(t->s);
    *atom = (uint32_t)t->count;
    value.tag = *atom;
    t->values[t->count++] = value;
    return true;
}

bool atoms_init(atom_table *t, source *s, const trace_limits *limits)
{
    *t = (atom_table){ .s = s, .limits = limits };
    for (uint32_t i = 0; i < ATOM_FIXED_COUNT; i++) {
        const bool shared = i == ATOM_LIST || i == ATOM_DICT;
        uint32_t atom;
        if (!add(t, (pickle_value){ .type = shared ? PICKLE_SHARED : PICKLE_OPAQUE }, &atom)) return false;
    }
    return rehash(t);
}

void atoms_release(atom_table *t)
{
    while (t->chunks) {
        struct atom_chunk *next = t->chunks->next;
        free(t->chunks);
        t->chunks = next;
    }
    free(t->values);
    free(t->slots);
}

/* Finds the atom, or the free slot where it belongs. */
static uint32_t *find(atom_table *t, uint64_t hash, uint32_t type, const void *bytes, size_t length)
{
    size_t mask = t->slot_count - 1;
    size_t at = hash & mask;
    while (t->slots[at] != ATOM_UNSET && !equals(t->values[t->slots[at]], type, bytes, length)) at = (at + 1) & mask;
    return &t->slots[at];
}

static bool insert(atom_table *t, uint32_t *slot, pickle_value value, pickle_value *out)
{
    if (!add(t, value, slot)) return false;
    *out = t->values[*slot];
    t->slots_used++;
    return t->slots_used * 2 < t->slot_count || rehash(t);
}

bool atoms_string(atom_table *t, const void *text, size_t length, pickle_value *out)
{
    uint32_t *slot = find(t, hash_text(text, length), PICKLE_STRING, text, length);
    if (*slot != ATOM_UNSET) {
        *out = t->values[*slot];
        return true;
    }
    if (length > t->limits->string_bytes - t->string_bytes)
        return source_fail(t->s, source_offset(t->s), "distinct strings of more than %" PRIu64 " bytes, the limit",
                           t->limits->string_bytes);
    pickle_string *string = chunk_alloc(t, sizeof *string + length + 1);
    if (!string) return source_fail_memory(t->s);
    string->id = ++t->strings;
    string->length = (uint32_t)length;
    memcpy(string->text, text, length);
    string->text[length] = '\0';
    t->string_bytes += length;
    return insert(t, slot, (pickle_value){ .type = PICKLE_STRING, .string = string }, out);
}

bool atoms_pair(atom_table *t, uint64_t first, uint64_t second, pickle_value *out)
{
    pickle_pair key = { { first, second } };
    uint32_t *slot = find(t, hash_pair(first, second), PICKLE_PAIR, &key, sizeof key);
    if (*slot != ATOM_UNSET) {
        *out = t->values[*slot];
        return true;
    }
    pickle_pair *pair = chunk_alloc(t, sizeof *pair);
    if (!pair) return source_fail_memory(t->s);
    *pair = key;
    return insert(t, slot, (pickle_value){ .type = PICKLE_PAIR, .pair = pair }, out);
}

bool atoms_token(atom_table *t, pickle_value token, uint32_t *atom)
{
    uint32_t *slot = find(t, mix(token.big), PICKLE_TOKEN, &token.big, sizeof token.big);
    pickle_value kept = { .tag = *slot };
    if (*slot == ATOM_UNSET && !insert(t, slot, token, &kept)) return false;
    *atom = kept.tag;
    return true;
}

bool atoms_scalar(atom_table *t, pickle_value value, uint32_t *atom)
{
    return add(t, value, atom);
}
