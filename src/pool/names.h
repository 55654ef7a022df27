/*
 * names: the ids of private pools. A number is never given twice in the life of the process, so a stale id is always
 * recognised; what is kept for ids grows with those that are in use, not with those that were given.
 * Owner: the process. Locks: one of its own (WR_RANK_LEAF) for all changes; finding takes none.
 */
#ifndef WR_POOL_NAMES_H
#define WR_POOL_NAMES_H

#include "base/status.h"

#include <stdint.h>

struct wr_mempool;

/* A pool's id in one word: twice its number, plus one if a capture made it. 0 is the default pool, or an unused
 * record. */
typedef uint64_t wr_mempool_name;

#define WR_MEMPOOL_NOBODY UINT64_MAX          /* no pool's name */
#define WR_MEMPOOL_MALFORMED (UINT64_MAX - 1) /* of an id that can be no pool's */

/* A new id, which has no pool yet: a user's (true) or a capture's. */
WR_CHECKED weir_status wr_mempool_name_new(bool of_user, wr_mempool_name *out);

/* The id stands for the pool from now on. WEIR_ERR_BUSY: it has one already, made meanwhile for another capture, also
 * on another device. */
WR_CHECKED weir_status wr_mempool_name_claim(wr_mempool_name name, struct wr_mempool *pool);

/* The id has no pool again, and may get one. */
void wr_mempool_name_disclaim(wr_mempool_name name);

/* The id stands for nothing from now on. Ending it again does nothing. */
void wr_mempool_name_end(wr_mempool_name name);

/* The same if the id has no pool. False: it has one, or is gone. */
bool wr_mempool_name_return(wr_mempool_name name);

/* At close: as wr_mempool_name_end() for all. */
void wr_mempool_names_release(void);

/* What an id stands for. WEIR_ERR_POOL_MISMATCH: never given out, or gone. *out is NULL when the id has no pool yet;
 * otherwise the pool may be gone by the time the caller takes its cache's lock. */
WR_CHECKED weir_status wr_mempool_find(weir_mempool id, wr_mempool_name *name, struct wr_mempool **out);

/* 0: the default pool's. */
static inline wr_mempool_name wr_mempool_name_from(weir_mempool id)
{
    const uint64_t number = id.user | id.capture;
    return (id.user && id.capture) || number >> 62 ? WR_MEMPOOL_MALFORMED : number << 1 | (id.capture != 0);
}

static inline weir_mempool wr_mempool_id_of(wr_mempool_name name)
{
    return name & 1 ? (weir_mempool){ name >> 1, 0 } : (weir_mempool){ 0, name >> 1 };
}

/* For messages: "{0, 3}". */
#define WR_MEMPOOL_FORMAT "{%llu, %llu}"
#define WR_MEMPOOL_ARGUMENTS(name)                                                                                     \
    (unsigned long long)wr_mempool_id_of(name).capture, (unsigned long long)wr_mempool_id_of(name).user

/* Whether no thread has the lock: for a child of fork. */
bool wr_mempool_names_at_rest(void);

#endif
