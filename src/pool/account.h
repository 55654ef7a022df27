/*
 * account: what is live on one stream, in all pools of a cache: now, at most, and in total; and what waits.
 * Owner: the cache. It is made with a stream's first bin; a later stream of the same index takes it over, emptied.
 * Lock: the cache's, or the cutting lock of the stream's detached front, of which there is one at most. What is parked
 * in the stream's fronts counts as live here, but not in a peak.
 */
#ifndef WR_POOL_ACCOUNT_H
#define WR_POOL_ACCOUNT_H

#include "pool/front/front.h"

struct wr_account {
    weir_stat blocks, bytes;         /* without `removed`, which nobody asks for */
    uint64_t pending, pending_bytes; /* freed, and waiting for other streams or graphs */
    const wr_stream *stream;
};

wr_account *wr_account_locked(const wr_cache *cache, uint32_t index); /* NULL: none */
WR_CHECKED weir_status wr_account_make_locked(wr_cache *cache, const wr_stream *stream, wr_account **out);

/* A stream has ended, and all its blocks have moved to another one. */
void wr_account_close_locked(wr_cache *cache, uint32_t from, uint32_t to);

void wr_accounts_reset_locked(wr_cache *cache, bool peaks, bool totals);
void wr_accounts_release(wr_cache *cache);

static inline void wr_account_note_peaks(wr_account *account)
{
    const int64_t not_live = wr_fronts_not_live_on(account->stream, WR_FLOW_BLOCKS);
    const int64_t not_live_bytes = wr_fronts_not_live_on(account->stream, WR_FLOW_BYTES);
    if (account->blocks.current - not_live > account->blocks.peak)
        account->blocks.peak = account->blocks.current - not_live;
    if (account->bytes.current - not_live_bytes > account->bytes.peak)
        account->bytes.peak = account->bytes.current - not_live_bytes;
}

static inline void wr_account_in(wr_account *account, size_t bytes)
{
    account->blocks.current++;
    account->blocks.added++;
    account->bytes.current += (int64_t)bytes;
    wr_total_add(&account->bytes.added, bytes);
    if (account->blocks.current > account->blocks.peak || account->bytes.current > account->bytes.peak)
        wr_account_note_peaks(account);
}

static inline void wr_account_out(wr_account *account, int64_t blocks, int64_t bytes)
{
    account->blocks.current -= blocks;
    account->bytes.current -= bytes;
}

#endif
