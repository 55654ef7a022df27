/* What a C user's first program does, built outside the source tree against an installed copy. */
#include <weir/host.h>
#include <weir/trace.h>
#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, weir_error_text());                             \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    REQUIRE(strcmp(weir_version(), version) == 0);

    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    REQUIRE(weir_open(&settings) == WEIR_OK);
    const char *backend = NULL;
    REQUIRE(weir_backend_name(&backend) == WEIR_OK && strcmp(backend, "host") == 0);

    unsigned char *block = NULL;
    REQUIRE(weir_alloc(1 << 20, (void **)&block) == WEIR_OK && block);
    unsigned char there[4] = { 0 };
    REQUIRE(weir_fill(block, 0x5a, 1 << 20, WEIR_STREAM_CURRENT) == WEIR_OK);
    REQUIRE(weir_copy(there, block + (1 << 20) - 4, sizeof there, WEIR_STREAM_CURRENT) == WEIR_OK);
    REQUIRE(weir_stream_synchronize(WEIR_STREAM_CURRENT) == WEIR_OK);
    REQUIRE(memcmp(there, "\x5a\x5a\x5a\x5a", sizeof there) == 0);

    weir_memory_stats stats = { .size = sizeof stats };
    REQUIRE(weir_stats_get(WEIR_DEVICE_CURRENT, &stats) == WEIR_OK);
    REQUIRE(stats.requested_bytes[WEIR_STAT_ALL].current == 1 << 20);
    REQUIRE(weir_free(block) == WEIR_OK);
    REQUIRE(weir_free(block) == WEIR_ERR_DOUBLE_FREE);
    REQUIRE(strlen(weir_error_text()) > 0);
    REQUIRE(weir_close() == WEIR_OK);
    REQUIRE(weir_alloc(1, (void **)&block) == WEIR_ERR_CLOSED);
    return 0;
}
