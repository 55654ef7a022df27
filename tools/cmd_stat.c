/* weir stat: says what is in a trace. */
#include "cli.h"
#include "command.h"
#include "output/caller.h"
#include "output/file.h"
#include "output/json.h"
#include "stat/run.h"

#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "usage: weir stat [OPTION]... TRACE...\n\n"
    "Says what is in traces: events by kind, peaks of requested, active and reserved bytes with the holes at those\n"
    "moments, devices, pools and streams, sizes and lifetimes, the largest allocations at the peak of each device and\n"
    "who held most there, and failures, with the memory as it stood then, and who held it at the last one.\n\n"
    "  -n, --largest N   how many of the largest allocations of each device, and of who held most, to list, 0 to 10000;\n"
    "                    default 10\n"
    "      --json FILE   the results as JSON; - is stdout, instead of the text\n"
    "  -h, --help        this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

/* That of `paths[at]`, one of `count`. */
static bool stat_trace(char *const *paths, int count, int at, size_t largest, bool silent, json_t *array)
{
    trace t;
    if (!cli_trace("stat", paths, count, at, &t)) return false;

    stat_run r = { .name = cli_trace_name(&t, paths[at]), .t = &t, .ranks = caller_ranks(&t.stacks) };
    timeline_build(&t, &r.l);
    summarize(&r.l, largest, &r.s);
    stat_find_holders(&r, largest);
    if (!silent && json_array_size(array)) putchar('\n');
    if (!silent) stat_print(&r);
    json_push(array, stat_json(&r));
    stat_release_holders(&r);
    summary_release(&r.s);
    timeline_release(&r.l);
    free(r.ranks);
    trace_release(&t);
    return true;
}

int cmd_stat(int argc, char **argv)
{
    static const struct option options[] = {
        { "largest", required_argument, NULL, 'n' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *json = NULL;
    uint64_t largest = 10;
    for (int option; (option = cli_option("stat", argc, argv, "n:h", options)) != -1;) {
        switch (option) {
        case 'n':
            if (cli_count(optarg, 0, 10000, &largest)) break;
            return cli_usage("stat", "--largest '%s' is not a number from 0 to 10000", optarg);
        case 'j': json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (optind == argc) return cli_usage("stat", "no trace given; name at least one file, or - for stdin");
    if (!cli_spares_traces("stat", argv + optind, argc - optind, json, NULL)) return COMMAND_USAGE;

    bool good = true, silent = output_is_stdout(json);
    json_t *array = json_array();
    for (int i = 0; i < argc - optind; i++)
        good &= stat_trace(argv + optind, argc - optind, i, (size_t)largest, silent, array);
    if (json) good &= json_write("stat", array, json);
    json_decref(array);
    return good ? 0 : COMMAND_FAILED;
}
