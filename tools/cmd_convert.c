/* weir convert: any trace that weir reads, in weir's own format. */
#include "cli.h"
#include "command.h"
#include "input/native.h"
#include "output/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: weir convert TRACE -o FILE\n\n"
    "Rewrites a trace in weir's own format, which is small, fast to read and documented.\n\n"
    "  -o, --output FILE  where to write; - is stdout; a file that exists is replaced whole or not at all\n"
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

int cmd_convert(int argc, char **argv)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *output = NULL;
    for (int option; (option = cli_option("convert", argc, argv, "o:h", options)) != -1;) {
        switch (option) {
        case 'o': output = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (argc - optind != 1) return cli_usage("convert", "exactly one trace is converted; %d were given", argc - optind);
    if (!output) return cli_usage("convert", "where to? Name a file with -o, or - for stdout");

    if (!cli_spares_trace("convert", argv[optind], output)) return COMMAND_USAGE;

    trace t;
    if (!cli_trace("convert", argv[optind], &t)) return COMMAND_FAILED;

    bool good = write_trace(output, &t);
    trace_release(&t);
    return good ? 0 : COMMAND_FAILED;
}
