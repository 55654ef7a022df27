/*
 * Running out of memory in a process without PyTorch, whose exception therefore cannot be found.
 */
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/types.h>

extern "C" void *weir_torch_alloc(ssize_t size, int device, void *stream);
extern "C" bool weir_torch_raises_its_own();

int main()
{
    if (weir_torch_raises_its_own()) return 1;
    try {
        weir_torch_alloc(static_cast<ssize_t>(1) << 50, 0, nullptr);
    } catch (const std::bad_alloc &e) {
        std::puts(e.what());
        return std::strstr(e.what(),
                           "CUDA out of memory. Tried to allocate 1048576.00 GiB. GPU 0 has a total capacity of ") &&
                       std::strstr(e.what(), " is free. weir: out of memory on device 0")
                   ? 0
                   : 1;
    }
    return 1;
}
