/*
 * cli: what every command does with its command line. Messages go to stderr and begin with "weir COMMAND: ".
 */
#ifndef WEIR_TOOLS_CLI_H
#define WEIR_TOOLS_CLI_H

#include "input/input.h"
#include "script/script.h"

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One message, with "weir " and the command (NULL: none) before it and a newline after it. */
void cli_say(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As cli_say, followed by where to find help. Returns the exit code of a usage error. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The one of `count` words that `word` most likely meant; NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *words, size_t count);

/* The known word that equals `word`; NULL after reporting a usage error. `what` says what kind of word it is. */
const char *cli_word(const char *command, const char *what, const char *word, const char *const *known, size_t count);

/* getopt_long for options with long names and val other than '?'. On an error it reports what is wrong, naming the
 * nearest option, and returns '?'. */
int cli_option(const char *command, int argc, char **argv, const char *letters, const struct option *options);

/* "80GiB", "80 GB", "1.5g", "4096": K, M, G, T are powers of 1024, in any case, with or without "iB" or "B". */
bool cli_size(const char *text, uint64_t *bytes);

/* A size that a device may have: from one segment to 16 TiB. */
bool cli_device_size(const char *text, uint64_t *bytes);

/* The value of --device-memory. False after reporting a usage error. */
bool cli_device_memory(const char *command, const char *text, uint64_t *bytes);

/* A whole number from `least` to `most`, decimal. */
bool cli_count(const char *text, uint64_t least, uint64_t most, uint64_t *count);

/* False after reporting a usage error: the output, which may be NULL, is the trace that is read. */
bool cli_spares_trace(const char *command, const char *input, const char *path);

/* False after reporting a usage error: the two outputs, each of which may be NULL, are one file, or both stdout. */
bool cli_are_apart(const char *command, const char *one, const char *other);

/* False after reporting a usage error: an output is one of the traces, is named like a trace, or is the other output.
 * Each may be NULL. */
bool cli_spares_traces(const char *command, char *const *traces, int count, const char *one, const char *other);

/* trace_read of `paths[at]`, one of `count`, with a progress bar; says why on stderr when it fails. The trace is named
 * by its path where another file of them has its name, too. */
bool cli_trace(const char *command, char *const *paths, int count, int at, trace *out);

/* The same, and the trace's script. Neither is there when it fails. */
bool cli_script(const char *command, char *const *paths, int count, int at, trace *t, script *sc);

/* The trace's name, or "-" and the like when it has none. Valid as long as the trace. */
const char *cli_trace_name(const trace *t, const char *path);

/* Says on stderr which events of a trace are doubtful, and how many allocations failed when it was recorded; `refused`
 * says what becomes of those. */
void cli_say_left_out(const char *command, const char *name, const script *sc, const char *refused);

/* What to say of a script's residents, of which there are some: how many, and the most that the recorded allocator
 * held, on all devices together, where that is known. */
enum { CLI_RESIDENTS = 192 };
const char *cli_residents(const script *sc, char text[CLI_RESIDENTS]);

#endif
