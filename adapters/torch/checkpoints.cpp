#include "torch/checkpoints.h"

#include "torch/errors.h"
#include "torch/symbols.h"

#include <stdexcept>

namespace
{

constexpr signed char CUDA = 1; /* c10::DeviceType */

thread_local void *noted; /* what the next request is answered with */

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
    const size_t most; /* blocks that were live */
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

/* What the allocator object itself does. */
struct methods {
    void *(*request)(void *allocator, size_t bytes, signed char device, void *stream);
    void (*(*deleter)(const void *allocator))(void *);
};

const methods &theirs()
{
    static const methods found = {
        reinterpret_cast<decltype(methods::request)>(wa_allocator_method(
            WA_ALLOCATOR_METHOD("6mallocEmaP11CUstream_st"), WA_ALLOCATOR_METHOD("6mallocEmiP11CUstream_st"))),
        reinterpret_cast<decltype(methods::deleter)>(
            wa_torch_symbol(WA_TORCH_WHOLE, "_ZNK" WA_ALLOCATOR "11raw_deleterEv")),
    };
    if (!found.request || !found.deleter)
        throw std::runtime_error("weir: this PyTorch's allocator is another than weir knows, so memory pools cannot be "
                                 "put back to a checkpoint; compile without mode=\"reduce-overhead\"");
    return found;
}

/* The allocator frees only what it has noted when it was requested. It notes size and stream for weir_torch_free(),
 * which does not look at them. */
void note(void *allocator, signed char device, void *block)
{
    noted = block;
    theirs().request(allocator, 0, device, nullptr);
}

struct change {
    std::vector<void *> freed, restored;
};

/* C calls these, so they must not throw: there is room. */
void add_freed(void *user, void *block)
{
    static_cast<change *>(user)->freed.push_back(block);
}

void add_restored(void *user, void *block)
{
    static_cast<change *>(user)->restored.push_back(block);
}

} // namespace

void *wa_checkpoint_block()
{
    return std::exchange(noted, nullptr);
}

std::shared_ptr<wa_allocator_state> wa_checkpoint_get(void *, signed char device, wa_mempool_id pool)
{
    weir_mempool ours;
    (void)theirs();
    if (wa_scope_references(device, wa_named(pool), &ours) == 0)
        throw std::runtime_error("weir: a checkpoint was asked for of a memory pool that does not exist");
    return std::make_shared<checkpoint>(ours);
}

wa_checkpoint_delta wa_checkpoint_set(void *allocator, signed char device, std::shared_ptr<wa_allocator_state> state)
{
    const auto *to = dynamic_cast<const checkpoint *>(state.get());
    if (!to) throw std::runtime_error("weir: this checkpoint of a memory pool is none of weir's");
    change blocks;
    blocks.freed.reserve(blocks_of(to->pool));
    blocks.restored.reserve(to->most);
    wa_torch_check(weir_mempool_restore(to->pool, to->blocks, add_freed, add_restored, &blocks));
    wa_checkpoint_delta delta;
    delta.freed = std::move(blocks.freed);
    delta.restored.reserve(blocks.restored.size());
    for (void *block : blocks.restored) {
        note(allocator, device, block);
        delta.restored.push_back({ block, { block, theirs().deleter(allocator) }, CUDA, device });
    }
    return delta;
}
