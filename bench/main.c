#include "bench.h"
#include "peers.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool (*run)(const bench_options *options);
    const char *help;
} benches[] = {
    { "handles", bench_handles, "getting a library handle that is there, on 1 to N threads" },
    { "costs", bench_costs, "making handles on N threads: time, and device memory by the driver's figure" },
    { "alloc", bench_alloc, "an allocation and its free, when nothing has to grow, on 1 to N threads" },
    { "tails", bench_tails, "single calls: the slowest of 100, 1,000 and 10,000, on 1 to N threads" },
    { "many", bench_many, "an allocation, and one that no free block fits, while up to 100,000 blocks are live" },
    { "replay", bench_replay, "recorded traces: time per operation and peaks" },
    { "history", bench_history, "recording an event, reading a million of them back, and snapshots" },
};
enum { BENCHES = sizeof benches / sizeof benches[0], USAGE = 2 };

static const char help[] =
    "\nOptions:\n"
    "  -t, --threads N       most threads, 1 to 256; default 2\n"
    "  -b, --backend NAME    host or cuda, for weir; default host\n"
    "  -p, --peer FILE       a further peer: a shared object that implements bench/peer.h; repeatable.\n"
    "                        FILE,VARIABLE=VALUE sets the variable first; such a peer takes part where each has a\n"
    "                        process of its own (replay)\n"
    "  -w, --warm-up MS      tails: how long each thread works before its calls count, up to 60000; default 0. With\n"
    "                        it, only the most threads are run\n"
    "  -h, --help            this text\n\n"
    "Tables show medians and ratios to weir, then whether the figures meet the project's targets.\n"
    "Exit codes: 0 success, 1 something could not run, 2 wrong usage. Peers that are not installed are left out.\n";

static int usage(FILE *to, int code)
{
    fputs("usage: weir-bench [BENCH] [OPTION]... [TRACE]...\n\nBENCH is all, the default, or one of\n", to);
    for (size_t i = 0; i < BENCHES; i++) fprintf(to, "  %-9s %s\n", benches[i].name, benches[i].help);
    fputs(help, to);
    return code;
}

static bool take_peer(bench_options *options, const char *text)
{
    const size_t path = strcspn(text, ","), variable = text[path] ? strcspn(text + path + 1, "=") : 0;
    if (options->peer_count == BENCH_PEER_FILES) {
        fprintf(stderr, "weir-bench: --peer: at most %d\n", BENCH_PEER_FILES);
        return false;
    }
    bench_peer_file *file = &options->peers[options->peer_count++];
    const char *value = text + path + variable + 2; /* behind "," and "=" */
    if (path == 0 || path >= sizeof file->path || (text[path] && (variable == 0 || !text[path + 1 + variable])) ||
        variable >= sizeof file->variable || (text[path] && strlen(value) >= sizeof file->value)) {
        fprintf(stderr, "weir-bench: --peer '%s' is not FILE or FILE,VARIABLE=VALUE\n", text);
        return false;
    }
    memcpy(file->path, text, path);
    if (!text[path]) return true;
    memcpy(file->variable, text + path + 1, variable);
    snprintf(file->value, sizeof file->value, "%s", value);
    return true;
}

static bool take_number(const char *option, const char *text, unsigned least, unsigned most, unsigned *out)
{
    char *end = NULL;
    const unsigned long number = strtoul(text, &end, 10);
    *out = (unsigned)number;
    if (*text >= '0' && *text <= '9' && *end == '\0' && number >= least && number <= most) return true;
    fprintf(stderr, "weir-bench: --%s '%s' is not a number from %u to %u\n", option, text, least, most);
    return false;
}

static bool take_backend(bench_options *options, const char *text)
{
    options->backend = text;
    if (strcmp(text, "host") == 0 || strcmp(text, "cuda") == 0) return true;
    fprintf(stderr, "weir-bench: --backend '%s' is neither host nor cuda\n", text);
    return false;
}

/* The code to exit with, or -1 to go on. */
static int read_options(int argc, char **argv, bench_options *options)
{
    static const struct option known[] = {
        { "threads", required_argument, NULL, 't' }, { "backend", required_argument, NULL, 'b' },
        { "peer", required_argument, NULL, 'p' },    { "warm-up", required_argument, NULL, 'w' },
        { "help", no_argument, NULL, 'h' },          { 0 }
    };
    for (int c; (c = getopt_long(argc, argv, "t:b:p:w:h", known, NULL)) != -1;) {
        if (c == 'h') return usage(stdout, 0);
        const bool good = (c == 't' && take_number("threads", optarg, 1, BENCH_THREADS_MAX, &options->threads)) ||
                          (c == 'b' && take_backend(options, optarg)) || (c == 'p' && take_peer(options, optarg)) ||
                          (c == 'w' && take_number("warm-up", optarg, 0, 60000, &options->warm_up_ms));
        if (!good) return USAGE;
    }
    options->traces = argv + optind;
    options->trace_count = (size_t)(argc - optind);
    return -1;
}

int main(int argc, char **argv)
{
    bench_options options = { .threads = 2, .backend = "host" };
    int code = read_options(argc, argv, &options);
    if (code != -1) return code;
    const char *name = options.trace_count > 0 ? options.traces[0] : "all";
    if (options.trace_count > 0) options.traces++, options.trace_count--;
    /* The option has precedence, but the library would obey the variable. */
    unsetenv("WEIR_BACKEND");
    unsetenv("WEIR_POLICY");
    peer_weir_backend(options.backend);
    bench_verdicts_init();

    bool found = false, good = true;
    for (size_t i = 0; i < BENCHES; i++) {
        if (strcmp(name, "all") != 0 && strcmp(name, benches[i].name) != 0) continue;
        found = true;
        good &= benches[i].run(&options);
    }
    if (!found) {
        fprintf(stderr, "weir-bench: there is no bench '%s'\n", name);
        return usage(stderr, USAGE);
    }
    bench_verdicts(&options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "weir-bench: the results could not be written: %s\n", strerror(errno));
        return 1;
    }
    return good ? 0 : 1;
}
