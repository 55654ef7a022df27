/*
 * edits: how far a misspelt name is from a known one, for errors that say what may have been meant. No state.
 */
#ifndef WR_BASE_EDITS_H
#define WR_BASE_EDITS_H

#include <stddef.h>

/* Edits that turn one name into the other (Levenshtein). `name` is cut to 48 bytes. */
size_t wr_edits(const char *name, size_t length, const char *known);

#endif
