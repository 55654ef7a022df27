#include "bench.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} benches[] = { { "alloc", bench_alloc, "an allocation and its free against malloc, mimalloc, jemalloc" },
                { "handles", bench_handles,
                  "getting a library handle against a mutex-guarded map and create per call" } };

static int usage(FILE *to, int code)
{
    fputs("usage: weir-bench [BENCH [OPTIONS]]\nWithout a name, all of them run:\n", to);
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
        fprintf(to, "  %-10s %s\n", benches[i].name, benches[i].help);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return usage(stdout, 0);
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        if (argc > 1 && strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
        if (argc == 1) {
            int code = benches[i].run(1, argv);
            if (code != 0) return code;
        }
    }
    if (argc == 1) return 0;
    fprintf(stderr, "weir-bench: there is no bench \"%s\"\n", argv[1]);
    return usage(stderr, 2);
}
