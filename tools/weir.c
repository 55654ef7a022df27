/* weir: the command. Each of its commands is a file cmd_NAME.c and a row of the table below. */
#include "weir/weir.h"

#include "cli.h"
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "replay", cmd_replay, "replay recorded allocation traces and say what each policy costs" },
    { "view", cmd_view, "draw traces: a page to explore, or a picture" },
    { "stat", cmd_stat, "say what is in a trace: peaks, holes, sizes, lifetimes, the largest allocations" },
    { "plan", cmd_plan,
      "place a trace's allocations with all of it known, and say how near that is to the lower bound" },
    { "advise", cmd_advise, "say which PyTorch setting a trace's job should run with, and what card it needs" },
    { "check", cmd_check, "say whether a trace is well formed, and what it leaks" },
    { "convert", cmd_convert, "rewrite a trace in weir's own format" },
    { "info", cmd_info, "show back end, devices, libraries and options in force" },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    fputs("usage: weir COMMAND [OPTION]... [ARGUMENT]...\n"
          "       weir help [COMMAND]\n\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++) fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fputs("\n  -V, --version  print the library's version\n"
          "  -h, --help     this text\n"
          "\n'weir COMMAND --help' and the manual pages weir(1) and weir-COMMAND(1) say more.\n"
          "Exit codes: 0 success, 1 the input or the run failed, 2 wrong usage.\n",
          out);
}

static int unknown(const char *name)
{
    const char *names[COMMANDS + 1] = { "help" };
    for (size_t i = 0; i < COMMANDS; i++) names[1 + i] = commands[i].name;
    const char *nearest = cli_nearest(name, names, COMMANDS + 1);

    const char *what = name[0] == '-' ? "option" : "command";
    if (nearest) return cli_usage(NULL, "there is no %s '%s'; did you mean '%s'?", what, name, nearest);
    return cli_usage(NULL, "there is no %s '%s'", what, name);
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
    return unknown(argv[0]);
}

static int run(int argc, char **argv)
{
    if (argc < 2) return cli_usage(NULL, "no command given");

    static char listing[] = "--help";
    const char *name = argv[1];
    const bool helps = strcmp(name, "help") == 0;
    if (helps && argc > 3) return cli_usage(NULL, "help takes one command; %d were given", argc - 2);
    if (helps && argc == 3 && !asks_for_help(argv[2])) return run_command(2, (char *[]){ argv[2], listing, NULL });
    if (asks_for_help(name)) {
        help(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("weir %s\n", weir_version());
        return 0;
    }
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* makes a file that becomes too large a write error */
    int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    cli_say(NULL, "cannot write to standard output: %s", strerror(errno));
    return code ? code : COMMAND_FAILED;
}
