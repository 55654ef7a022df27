/*
 * command: the commands of `weir`. Each gets its own name in argv[0] and returns the exit code. A new command is one
 * file, one line here and one row in weir.c.
 */
#ifndef WEIR_TOOLS_COMMAND_H
#define WEIR_TOOLS_COMMAND_H

/* Exit codes, besides 0. */
#define COMMAND_FAILED 1 /* the input or the run */
#define COMMAND_USAGE 2

int cmd_advise(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_view(int argc, char **argv);

#endif
