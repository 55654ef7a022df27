#include "pool/account.h"

#include "base/meta.h"
#include "observe/metrics.h"

wr_account *wr_account_locked(const wr_cache *cache, uint32_t index)
{
    return index < cache->account_capacity ? cache->accounts[index] : NULL;
}

weir_status wr_account_make_locked(wr_cache *cache, const wr_stream *stream, wr_account **out)
{
    const uint32_t index = stream->index;
    WR_TRY(wr_meta_grow(&cache->accounts, &cache->account_capacity, index + 1, sizeof *cache->accounts,
                        "streams' statistics"));
    if (!cache->accounts[index]) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_account), "stream's statistics", &made));
        cache->accounts[index] = made;
        cache->accounts[index]->stream = stream;
    }
    *out = cache->accounts[index];
    return WEIR_OK;
}

void wr_account_close_locked(wr_cache *cache, uint32_t from, uint32_t to)
{
    wr_account *account = wr_account_locked(cache, from), *heir = wr_account_locked(cache, to);
    if (!account) return;
    if (heir) { /* there is none if nothing moved */
        heir->blocks.current += account->blocks.current;
        heir->bytes.current += account->bytes.current;
        heir->pending += account->pending;
        heir->pending_bytes += account->pending_bytes;
        wr_account_note_peaks(heir);
        wr_fronts_unsettle(heir->stream, NULL);
    }
    *account = (wr_account){ .stream = account->stream };
}

void wr_accounts_reset_locked(wr_cache *cache, bool peaks, bool totals)
{
    for (uint32_t i = 0; i < cache->account_capacity; i++) {
        wr_account *account = cache->accounts[i];
        if (!account) continue;
        wr_stat_reset(&account->blocks, peaks, totals);
        wr_stat_reset(&account->bytes, peaks, totals);
    }
}

void wr_accounts_release(wr_cache *cache)
{
    for (uint32_t i = 0; i < cache->account_capacity; i++) wr_meta_free(cache->accounts[i]);
    wr_meta_free(cache->accounts);
}
