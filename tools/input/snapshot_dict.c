#include "snapshot_dict.h"

#include <stdlib.h>
#include <string.h>

const char *const snapshot_words[] = {
#define WORD_TEXT(name, text) text,
    WORDS(WORD_TEXT)
#undef WORD_TEXT
};

_Static_assert(LAST_KEY < 64, "a dict's keys are bits of one word");
_Static_assert(WORD_SNAPSHOT - WORD_ALLOC == WEIR_EVENT_SNAPSHOT - WEIR_EVENT_ALLOC,
               "actions are in the order of kinds");

const char *word_text(word w)
{
    return snapshot_words[w - 1];
}

const pickle_value *dict_get(const dict *d, word key)
{
    if (!d || !(d->has >> key & 1)) return NULL;
    const pickle_value *item = d->items;
    while (item->tag != key) item++;
    return item;
}

bool dict_has(const dict *d, word key)
{
    return d && d->has >> key & 1;
}

bool dict_gives(const dict *d, word key)
{
    const pickle_value *value = dict_get(d, key);
    return value && value->type != PICKLE_NONE;
}

pickle_value *dict_slot(dict **d, word key)
{
    if (dict_has(*d, key)) {
        pickle_value *item = (*d)->items;
        while (item->tag != key) item++;
        return item;
    }
    if (!*d || (*d)->count == (*d)->capacity) {
        uint8_t capacity = *d ? (uint8_t)((*d)->capacity * 2) : 8;
        dict *moved = realloc(*d, sizeof *moved + capacity * sizeof *moved->items);
        if (!moved) return NULL;
        if (!*d) *moved = (dict){ 0 };
        moved->capacity = capacity;
        *d = moved;
    }
    (*d)->has |= (uint64_t)1 << key;
    pickle_value *item = &(*d)->items[(*d)->count++];
    *item = (pickle_value){ .type = PICKLE_NONE, .tag = key };
    return item;
}

bool dict_number(const dict *d, word key, uint64_t *out)
{
    const pickle_value *value = dict_get(d, key);
    *out = 0;
    return !value || value->type == PICKLE_NONE || pickle_u64(*value, out);
}

bool dict_address(const dict *d, word key, uint64_t *out)
{
    const pickle_value *value = dict_get(d, key);
    if (!value || value->type != PICKLE_INT) return dict_number(d, key, out);
    *out = (uint64_t)value->number;
    return true;
}

bool dict_pool(const dict *d, word key, uint64_t out[2])
{
    const pickle_value *value = dict_get(d, key);
    out[0] = out[1] = 0;
    if (!value || value->type == PICKLE_NONE) return true;
    if (value->type != PICKLE_PAIR) return false;
    memcpy(out, value->pair->of, sizeof value->pair->of);
    return true;
}

bool dict_true(const dict *d, word key)
{
    const pickle_value *value = dict_get(d, key);
    return value && value->type == PICKLE_BOOL && value->boolean;
}

bool dict_time_ns(const dict *d, uint64_t *out)
{
    const pickle_value *value = dict_get(d, WORD_TIME_US);
    if (value && value->type == PICKLE_FLOAT) {
        if (!(value->real >= 0 && value->real < 1.8e16)) return false;
        *out = (uint64_t)(value->real * 1000);
        return true;
    }
    return dict_number(d, WORD_TIME_US, out) && !__builtin_mul_overflow(*out, (uint64_t)1000, out);
}

uint32_t dict_stack(const dict *d)
{
    uint64_t number;
    return dict_number(d, WORD_FRAMES, &number) ? (uint32_t)number : 0;
}

word dict_word(const dict *d, word key)
{
    const pickle_value *value = dict_get(d, key);
    bool known = value && value->type == PICKLE_STRING && value->string->id <= WORD_COUNT;
    return known ? (word)value->string->id : WORD_NONE;
}

const char *dict_text(const dict *d, word key)
{
    const pickle_value *value = dict_get(d, key);
    return value && value->type == PICKLE_STRING ? value->string->text : "(no string)";
}
