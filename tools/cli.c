#include "cli.h"

#include "command.h"
#include "output/file.h"
#include "output/progress.h"
#include "output/table.h"
#include "output/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *command, const char *format, va_list arguments)
{
    fprintf(stderr, "weir%s%s: ", command ? " " : "", command ? command : "");
    text_vprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void cli_say(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'weir%s%s --help'.\n", command ? " " : "", command ? command : "");
    return COMMAND_USAGE;
}

#define LONGEST_WORD 63

/* Edits (insert, delete, replace, swap neighbours) between two words, of which LONGEST_WORD characters count. */
static unsigned distance(const char *a, const char *b)
{
    size_t rows = strnlen(a, LONGEST_WORD), columns = strnlen(b, LONGEST_WORD);
    unsigned cost[LONGEST_WORD + 1][LONGEST_WORD + 1];

    for (size_t i = 0; i <= rows; i++) cost[i][0] = (unsigned)i;
    for (size_t j = 0; j <= columns; j++) cost[0][j] = (unsigned)j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= columns; j++) {
            unsigned best = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (cost[i - 1][j] + 1 < best) best = cost[i - 1][j] + 1;
            if (cost[i][j - 1] + 1 < best) best = cost[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && cost[i - 2][j - 2] + 1 < best) best = cost[i - 2][j - 2] + 1;
            cost[i][j] = best;
        }
    }
    return cost[rows][columns];
}

const char *cli_nearest(const char *word, const char *const *words, size_t count)
{
    size_t length = strlen(word);
    unsigned near = (unsigned)(length + 1) / 3; /* further away it was hardly meant */
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++) {
        unsigned d = distance(word, words[i]);
        /* At a distance of the whole word the two have nothing in common. */
        if (d > near || d >= strlen(words[i]) || d >= length) continue;
        near = d ? d - 1 : 0;
        nearest = words[i];
        if (d == 0) break;
    }
    return nearest;
}

const char *cli_word(const char *command, const char *what, const char *word, const char *const *known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, known[i]) == 0) return known[i];

    const char *nearest = cli_nearest(word, known, count);
    char list[256] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", known[i]);
    if (nearest)
        cli_usage(command, "there is no %s '%s'; did you mean '%s'?", what, word, nearest);
    else
        cli_usage(command, "there is no %s '%s'; choose from %s", what, word, list);
    return NULL;
}

static void unknown_option(const char *command, const char *given, const struct option *options)
{
    const char *words[32];
    size_t count = 0;
    for (const struct option *o = options; o->name && count < sizeof words / sizeof *words; o++)
        words[count++] = o->name;

    char name[64], meant[200] = "";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + 2, "="), given + 2);
    size_t begins = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(words[i], name, strlen(name)) != 0 || length >= sizeof meant) continue;
        length += (size_t)snprintf(meant + length, sizeof meant - length, "%s--%s", begins++ ? ", " : "", words[i]);
    }
    if (begins > 1) {
        cli_usage(command, "option '--%s' is ambiguous: %s", name, meant);
        return;
    }
    const char *nearest = cli_nearest(name, words, count);
    if (nearest)
        cli_usage(command, "there is no option '--%s'; did you mean '--%s'?", name, nearest);
    else
        cli_usage(command, "there is no option '--%s'", name);
}

int cli_option(const char *command, int argc, char **argv, const char *letters, const struct option *options)
{
    opterr = 0;
    int argument = optind ? optind : 1;
    int found = getopt_long(argc, argv, letters, options, NULL);
    if (found != '?' && found != ':') return found;

    /* getopt_long moves operands behind the option, so the option is just before optind; inside a bundle of letters
     * optind has not moved yet. */
    const char *given = optind > argument ? argv[optind - 1] : argv[argument];
    bool needs_value = false;
    for (const struct option *o = options; o->name; o++)
        if (optopt && o->val == optopt) needs_value = o->has_arg == required_argument;

    if (strncmp(given, "--", 2) != 0 && !needs_value)
        cli_usage(command, "there is no option '-%c'", optopt);
    else if (optopt == 0)
        unknown_option(command, given, options);
    else if (needs_value)
        cli_usage(command, "option '%s' needs a value", given);
    else
        cli_usage(command, "option '%.*s' takes no value", (int)strcspn(given, "="), given);
    return '?';
}

bool cli_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "kmgt";
    char *end;

    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    double number = strtod(text, &end);
    unsigned long long whole = 0;
    bool exact = strspn(text, "0123456789") == (size_t)(end - text);
    if (exact) whole = strtoull(text, &end, 10);
    if (errno) return false;

    end += strspn(end, " ");
    unsigned shift = 0;
    for (unsigned i = 0; units[i] && *end; i++)
        if ((*end | 0x20) == units[i]) shift = 10 * (i + 1);
    if (shift && (*++end | 0x20) == 'i') end++;
    if ((*end | 0x20) == 'b') end++;
    if (*end) return false;

    double scaled = number * (double)(UINT64_C(1) << shift);
    if (!(scaled < 18446744073709551616.0)) return false;
    *bytes = exact ? (uint64_t)whole << shift : (uint64_t)scaled;
    return true;
}

#define SMALLEST_DEVICE ((uint64_t)2 << 20) /* one segment */
#define LARGEST_DEVICE ((uint64_t)16 << 40) /* as of the option host_memory */

bool cli_device_size(const char *text, uint64_t *bytes)
{
    return cli_size(text, bytes) && *bytes >= SMALLEST_DEVICE && *bytes <= LARGEST_DEVICE;
}

bool cli_device_memory(const char *command, const char *text, uint64_t *bytes)
{
    if (cli_device_size(text, bytes)) return true;
    cli_usage(command, "--device-memory '%s' is not a size from 2 MiB to 16 TiB; give a size such as 24GiB or 512M",
              text);
    return false;
}

bool cli_spares_trace(const char *command, const char *input, const char *path)
{
    if (!path || output_is_stdout(path) || !output_is_one(path, input)) return true;
    cli_usage(command, "%s is an input and would be replaced; name another file for the output", path);
    return false;
}

static bool spares(const char *command, char *const *traces, int count, const char *path)
{
    for (int i = 0; i < count; i++)
        if (!cli_spares_trace(command, traces[i], path)) return false;
    if (!path || output_is_stdout(path) || !trace_is_named(path)) return true;
    cli_usage(command, "%s is named like a trace, but what is written is not one; name another file, or - for stdout",
              path);
    return false;
}

bool cli_are_apart(const char *command, const char *one, const char *other)
{
    if (!one || !other) return true;
    if (output_is_stdout(one) && output_is_stdout(other))
        cli_usage(command, "two outputs would go to stdout; name a file for one of them");
    else if (!output_is_stdout(one) && output_is_one(one, other))
        cli_usage(command, "two outputs would go to %s; name another file for one of them", one);
    else
        return true;
    return false;
}

bool cli_spares_traces(const char *command, char *const *traces, int count, const char *one, const char *other)
{
    return spares(command, traces, count, one) && spares(command, traces, count, other) &&
           cli_are_apart(command, one, other);
}

bool cli_count(const char *text, uint64_t least, uint64_t most, uint64_t *count)
{
    if (!*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    unsigned long long number = strtoull(text, NULL, 10);
    if (errno || number < least || number > most) return false;
    *count = number;
    return true;
}

/* Names the trace by its path where another file has its name, too. */
static void tell_apart(trace *t, char *const *paths, int count, int at)
{
    bool shared = false;
    for (int i = 0; i < count && !shared; i++) {
        if (strcmp(paths[i], paths[at]) == 0) continue;
        char *name = trace_name_of(paths[i]);
        shared = name && strcmp(name, t->name) == 0;
        free(name);
    }
    char *path = shared ? strdup(paths[at]) : NULL;
    if (!path) return;
    free(t->name);
    t->name = path;
}

bool cli_trace(const char *command, char *const *paths, int count, int at, trace *out)
{
    const char *path = paths[at];
    progress bar;
    trace_error error = { 0 };

    if (!*path) {
        cli_say(command, "a trace's name is empty; name a file, or - for stdin");
        return false;
    }
    progress_begin(&bar, "reading", path);
    bool good = trace_read(path, out, &error, bar.shown ? progress_on : NULL, &bar);
    progress_end(&bar);
    if (!good) {
        if (error.offset)
            cli_say(command, "%s: at byte %llu: %s", path, (unsigned long long)error.offset, error.text);
        else
            cli_say(command, "%s: %s", path, error.text);
    }
    if (good) tell_apart(out, paths, count, at);
    return good;
}

bool cli_script(const char *command, char *const *paths, int count, int at, trace *t, script *sc)
{
    char error[SCRIPT_ERROR];
    if (!cli_trace(command, paths, count, at, t)) return false;
    if (script_build(t, sc, error, sizeof error)) return true;
    cli_say(command, "%s: %s", paths[at], error);
    trace_release(t);
    return false;
}

const char *cli_trace_name(const trace *t, const char *path)
{
    return t->name && *t->name ? t->name : path;
}

void cli_say_left_out(const char *command, const char *name, const script *sc, const char *refused)
{
    char first[TABLE_SIZE];
    if (sc->anomalies)
        cli_say(command, "%s: %zu anomalies: events that contradict earlier ones; 'weir check' lists them", name,
                sc->anomalies);
    if (sc->refused)
        cli_say(command, "%s: %zu allocations failed when recorded, the first of %s; %s", name, sc->refused,
                table_size(sc->refused_first, first), refused);
}

const char *cli_residents(const script *sc, char text[CLI_RESIDENTS])
{
    char size[TABLE_SIZE];
    double held = 0;
    const bool known = sc->start.count != 0 && !sc->start.unknown && !sc->expandable;
    for (int device = 0; device < sc->devices; device++) held += sc->held[device];
    snprintf(text, CLI_RESIDENTS, "%zu residents: blocks from before the first event, which are allocated first%s%s",
             sc->residents, known ? "; the recorded allocator held up to " : "",
             known ? table_size((uint64_t)held, size) : "");
    return text;
}
