#include "torch/checkpoints.h"

#include "torch/errors.h"
#include "torch/requests.h"
#include "torch/scopes.h"

#include <stdexcept>

namespace
{

size_t blocks_of(weir_mempool pool)
{
    size_t count = 0;
    wa_torch_check(weir_mempool_blocks(pool, nullptr, 0, &count));
    return count;
}

class checkpoint final : public wa_allocator_state
{
  public:
    const weir_mempool pool;
    const size_t most; /* at least as many blocks as were live */
    weir_checkpoint *blocks = nullptr;

    explicit checkpoint(weir_mempool of) : pool(of), most(blocks_of(of))
    {
        wa_torch_check(weir_mempool_checkpoint(pool, &blocks));
    }
    checkpoint(const checkpoint &) = delete;
    checkpoint &operator=(const checkpoint &) = delete;
    ~checkpoint() override
    {
        weir_checkpoint_destroy(blocks);
    }
};

struct change {
    wa_checkpoint_delta delta;
    signed char device;
};

/* C calls these, so they must not throw. There is room, since nobody else uses the pool meanwhile. */
void add_freed(void *user, void *block)
{
    static_cast<change *>(user)->delta.freed.push_back(block);
}

void add_restored(void *user, void *block)
{
    auto *c = static_cast<change *>(user);
    c->delta.restored.push_back({ block, { block, wa_raw_deleter(nullptr) }, { WA_CUDA, c->device } });
}

} // namespace

std::shared_ptr<wa_allocator_state> wa_checkpoint_get(void *, signed char device, wa_mempool_id pool)
{
    weir_mempool ours;
    if (wa_scope_references(device, wa_named(pool), &ours) == 0)
        throw std::runtime_error("weir: a checkpoint was asked for of a memory pool that does not exist");
    return std::make_shared<checkpoint>(ours);
}

wa_checkpoint_delta wa_checkpoint_set(void *, signed char device, std::shared_ptr<wa_allocator_state> state)
{
    const auto *to = dynamic_cast<const checkpoint *>(state.get());
    if (!to) throw std::runtime_error("weir: this checkpoint of a memory pool is none of weir's");
    change made{ {}, device };
    made.delta.freed.reserve(blocks_of(to->pool));
    made.delta.restored.reserve(to->most);
    wa_torch_check(weir_mempool_restore(to->pool, to->blocks, add_freed, add_restored, &made));
    return std::move(made.delta);
}
