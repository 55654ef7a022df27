/*
 * exit_key: what the end of a thread calls, with the value that the thread has set. The key is made when a thread first
 * sets one. If the process has no key left just then, the next thread tries again. No lock, which a child of fork might
 * find held for ever.
 */
#ifndef WR_BASE_EXIT_KEY_H
#define WR_BASE_EXIT_KEY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct wr_exit_key {
    void (*at_exit)(void *value);
    atomic_uint key; /* plus one; 0: not made yet */
} wr_exit_key;

/* False: there is no key left, or no memory for the value. */
static inline bool wr_exit_key_set(wr_exit_key *k, const void *value)
{
    unsigned key = atomic_load_explicit(&k->key, memory_order_acquire);
    if (key == 0) {
        pthread_key_t made;
        if (pthread_key_create(&made, k->at_exit) != 0) return false;
        if (atomic_compare_exchange_strong(&k->key, &key, made + 1))
            key = made + 1;
        else
            pthread_key_delete(made); /* another thread was faster */
    }
    return pthread_setspecific(key - 1, value) == 0;
}

#endif
