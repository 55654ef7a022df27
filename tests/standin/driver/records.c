#include "standin/driver/driver.h"

#include <stdlib.h>
#include <sys/queue.h>

typedef struct record {
    LIST_ENTRY(record) link;
    standin_record known;
} record;

static LIST_HEAD(, record) records = LIST_HEAD_INITIALIZER(records);

void standin_remember(standin_kind what, int device, uint64_t key, uint64_t bytes)
{
    record *made = malloc(sizeof *made);
    if (made == NULL) abort();
    made->known = (standin_record){ .kind = what, .device = device, .key = key, .bytes = bytes };
    pthread_mutex_lock(&standin_lock);
    LIST_INSERT_HEAD(&records, made, link);
    pthread_mutex_unlock(&standin_lock);
}

static bool is(const standin_record *known, standin_kind what, uint64_t key)
{
    if (known->kind != what) return false;
    const bool wholly = what == RESERVATION || what == PINNED || what == REGISTERED;
    return known->key == key || (wholly && key > known->key && key - known->key < known->bytes);
}

int standin_recall(standin_kind what, uint64_t key, standin_record *out)
{
    record *found;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(found, &records, link)
        if (is(&found->known, what, key)) break;
    if (found != NULL) *out = found->known;
    pthread_mutex_unlock(&standin_lock);
    return found != NULL ? 0 : INVALID_VALUE;
}

int standin_forget(standin_kind what, uint64_t key, standin_record *out)
{
    record *found;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(found, &records, link)
        if (found->known.kind == what && found->known.key == key) break;
    if (found != NULL) LIST_REMOVE(found, link);
    pthread_mutex_unlock(&standin_lock);
    if (found == NULL) return INVALID_VALUE;
    *out = found->known;
    free(found);
    return 0;
}

int standin_forgotten(const standin_record *known, weir_status status)
{
    if (status != WEIR_OK) standin_remember(known->kind, known->device, known->key, known->bytes);
    return standin_code(status);
}

void standin_forget_memory(int device)
{
    record *found, *next;
    for (found = LIST_FIRST(&records); found != NULL; found = next) {
        next = LIST_NEXT(found, link);
        if (found->known.device != device) continue;
        LIST_REMOVE(found, link);
        free(found);
    }
}
