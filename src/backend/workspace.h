/*
 * workspace: what CUBLAS_WORKSPACE_CONFIG and variables like it ask for.
 */
#ifndef WR_BACKEND_WORKSPACE_H
#define WR_BACKEND_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>

/* Pairs ":SIZE:COUNT" of KiB and pieces, in sum, wherever they are in the text, as PyTorch reads them. False, *bytes of
 * no meaning: there is none, or they are more than 64 GiB. */
bool wr_workspace_read(const char *value, size_t *bytes);

#endif
