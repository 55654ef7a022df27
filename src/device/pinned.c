#include "device/pinned.h"

#include "base/log.h"
#include "base/meta.h"
#include "pool/pending.h"

weir_status wr_pinned_open(const wr_device *home, wr_pinned **out)
{
    void *memory = NULL;
    const wr_policy_options none = { 0 };
    WR_TRY(wr_meta_alloc(sizeof(wr_pinned), "cache of pinned memory", &memory));
    wr_pinned *p = memory;
    wr_numa_read(&p->numa);
    for (uint32_t i = 0; i < sizeof p->places / sizeof p->places[0]; i++) {
        p->places[i].index = i;
        p->places[i].device = home->ordinal;
    }
    weir_status status =
        wr_cache_init(&p->cache, home->backend, WR_CACHE_OF_HOST, &wr_policy_pinned, &none, NULL, 0, 0);
    if (status != WEIR_OK) {
        wr_meta_free(p);
        return status;
    }
    p->cache.pools->rules.memory = WEIR_MEMORY_PINNED;
    wr_log(WR_LOG_INFO, "pinned host memory through device %d, %u NUMA nodes", home->ordinal, p->numa.count);
    *out = p;
    return WEIR_OK;
}

weir_status wr_pinned_close(wr_pinned *pinned)
{
    wr_pending_release(&pinned->cache);
    weir_status first = wr_cache_release(&pinned->cache);
    wr_meta_free(pinned);
    return first;
}

weir_status wr_pinned_place(wr_pinned *pinned, int node, wr_stream **out)
{
    WR_ENSURE(
        node == WEIR_NUMA_ANY || wr_numa_has(&pinned->numa, node), WEIR_ERR_INVALID_ARGUMENT,
        "there is no NUMA node %d with memory on this machine, which has %u; WEIR_NUMA_ANY leaves the choice to the "
        "system",
        node, pinned->numa.count);
    /* On a machine with one node, that node and "anywhere" are the same place. */
    *out = &pinned->places[pinned->numa.count == 1 ? 0 : node + 1];
    return WEIR_OK;
}
