/*
 * file: plan files, and a readable listing of them.
 */
#ifndef WEIR_TOOLS_PLAN_FILE_H
#define WEIR_TOOLS_PLAN_FILE_H

#include "plan/make.h"

#include <stdio.h>

/* Checks the plan by decoding it again, and only then writes it; "-" is stdout. False: the reason was reported. */
bool plan_write(const char *path, const weir_plan *plan, const problem *p);

/* The caller destroys the plan; "-" is standard input. False: the reason was reported. */
bool plan_read(const char *command, const char *path, weir_plan **plan);

void plan_list(const weir_plan *plan, FILE *out);

#endif
