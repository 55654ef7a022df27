/*
 * RMM's containers on weir. Needs RMM 26.06 or later, and a GPU:
 *   c++ -std=c++20 rmm.cpp $(pkg-config --cflags --libs weir) -I.../cuda/include -lrmm -lcudart
 */
#include <cstdio>
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <weir/rmm.hpp>

int main()
{
    rmm::mr::set_current_device_resource(weir::rmm_resource());
    const rmm::cuda_stream stream;
    {
        rmm::device_buffer first(1 << 20, stream);
        const void *where = first.data();
        first = rmm::device_buffer(); /* freed on its stream, */
        const rmm::device_buffer second(1 << 20, stream);
        std::printf("%s memory\n", second.data() == where ? "the same" : "other"); /* and reused there at once */
    }
    try {
        const rmm::device_buffer impossible(static_cast<std::size_t>(1) << 50, stream);
    } catch (const rmm::out_of_memory &e) {
        std::printf("%s\n", e.what());
    }
    stream.synchronize();
    return 0;
}
