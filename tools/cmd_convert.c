/* weir convert: rewrites any trace that weir reads in weir's own format. */
#include "cli.h"
#include "command.h"
#include "input/native.h"
#include "output/file.h"
#include "output/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: weir convert TRACE -o FILE\n\n"
    "Rewrites a trace in weir's own format, which is small, fast to read and documented.\n\n"
    "  -o, --output FILE  the file to write; - is stdout; an existing file is replaced completely or not at all\n"
    "      --json FILE    what was written, as JSON; - is stdout\n"
    "  -h, --help         this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

static bool write_trace(const char *path, const trace *t)
{
    output_file file;
    if (!output_open("convert", path, &file)) return false;
    if (trace_write_native(file.stream, t)) return output_commit("convert", &file);

    cli_say("convert", "cannot write %s: %s", path, strerror(errno));
    output_discard(&file);
    return false;
}

static bool write_summary(const char *path, const char *input, const char *output, const trace *t)
{
    json_t *object = json_object();
    json_add(object, "trace", json_text(cli_trace_name(t, input)));
    json_add(object, "format", json_string(t->format));
    json_add(object, "output", json_text(output));
    json_add(object, "events", json_count(t->count));
    json_add(object, "dropped", json_count(t->dropped));
    json_add(object, "live_blocks", json_count(t->live_count));
    json_add(object, "segments", json_count(t->segment_count));
    const bool good = json_write("convert", object, path);
    json_decref(object);
    return good;
}

int cmd_convert(int argc, char **argv)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *output = NULL, *json = NULL;
    for (int option; (option = cli_option("convert", argc, argv, "o:h", options)) != -1;) {
        switch (option) {
        case 'o': output = optarg; break;
        case 'j': json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (argc - optind != 1) return cli_usage("convert", "give exactly one trace; there are %d", argc - optind);
    if (!output) return cli_usage("convert", "no output given; name a file with -o, or - for stdout");
    if (!cli_spares_trace("convert", argv[optind], output) || !cli_are_apart("convert", output, json) ||
        !cli_spares_traces("convert", argv + optind, 1, json, NULL))
        return COMMAND_USAGE;

    trace t;
    if (!cli_trace("convert", argv + optind, 1, 0, &t)) return COMMAND_FAILED;

    bool good = write_trace(output, &t) && (!json || write_summary(json, argv[optind], output, &t));
    trace_release(&t);
    return good ? 0 : COMMAND_FAILED;
}
