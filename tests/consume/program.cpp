// What a C++ user's first program does, built outside the source tree against an installed copy.
#include <weir/host.h>
#include <weir/trace.h>
#include <weir/weir.h>

#include <cstdio>
#include <string>
#include <thread>

static int failures;

static void require(bool good, const char *what)
{
    if (good) return;
    std::fprintf(stderr, "%s: %s\n", what, weir_error_text());
    failures++;
}

static void allocate_on_own_stream()
{
    weir_stream stream;
    require(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream) == WEIR_OK, "weir_stream_create");
    void *block = nullptr;
    require(weir_alloc_on(4096, stream, &block) == WEIR_OK && block, "weir_alloc_on");
    weir_pointer_info info = {};
    info.size = sizeof info;
    require(weir_pointer_info_get(block, &info) == WEIR_OK && info.requested == 4096, "weir_pointer_info_get");
    require(info.stream.id == stream.id, "the block's stream");
    require(weir_free(block) == WEIR_OK, "weir_free");
    require(weir_stream_destroy(stream) == WEIR_OK, "weir_stream_destroy");
}

static int start(void *, int, void **handle)
{
    static int only;
    *handle = &only;
    return 0;
}

static int finish(void *, void *)
{
    return 0;
}

static void register_a_kind()
{
    weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT };
    weir_handle_kind kind = 0;
    void *handle = nullptr;
    require(ops.size == sizeof ops && !ops.user && ops.flags == 0, "WEIR_HANDLE_OPS_INIT");
    ops.name = "program";
    ops.create = start;
    ops.destroy = finish;
    require(weir_handle_kind_register(&ops, &kind) == WEIR_OK, "weir_handle_kind_register");
    require(weir_handle_get(kind, &handle) == WEIR_OK && handle, "weir_handle_get");
}

int main()
{
    const std::string version = std::to_string(WEIR_VERSION_MAJOR) + "." + std::to_string(WEIR_VERSION_MINOR) + "." +
                                std::to_string(WEIR_VERSION_PATCH);
    require(version == weir_version(), "weir_version");

    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    require(weir_open(&settings) == WEIR_OK, "weir_open");
    std::thread(allocate_on_own_stream).join();
    register_a_kind();

    weir_memory_stats stats = {};
    stats.size = sizeof stats;
    require(weir_stats_get(0, &stats) == WEIR_OK, "weir_stats_get");
    require(stats.allocation[WEIR_STAT_ALL].current == 0, "nothing is left allocated");
    require(stats.allocation[WEIR_STAT_ALL].added == 1, "one allocation was made");
    require(weir_stream_synchronize(WEIR_STREAM_CURRENT) == WEIR_OK, "weir_stream_synchronize");
    require(weir_close() == WEIR_OK, "weir_close");
    return failures ? 1 : 0;
}
