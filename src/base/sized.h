/*
 * sized: the program's structures that begin with their size, as in the header that the program was compiled with. A
 * newer header's structure may be larger: members that this library does not know must be zero on the way in, and are
 * set to zero on the way out. What a later version appends to a structure fills whole words, as all members do now,
 * because padding between or behind members may contain anything.
 */
#ifndef WR_BASE_SIZED_H
#define WR_BASE_SIZED_H

#include "base/status.h"

#include <stddef.h>

/* Refuse NULL and a wrong size. wr_sized_check_in, for structures that the program fills in (`init` names the
 * initialiser), also refuses unknown members that are not zero. */
WR_CHECKED weir_status wr_sized_check_out(const char *call, const char *type, const void *out, size_t known);
WR_CHECKED weir_status wr_sized_check_in(const char *call, const char *name, const char *init, const void *in,
                                         size_t known);

/* The offset of the first byte that is neither known nor zero; 0: there is none. */
size_t wr_sized_unknown(const void *structure, size_t size, size_t known);

/* Copies `value`, of the known size, into the checked `out`. `out` keeps its own size member, and its unknown members
 * become zero. */
void wr_sized_give(void *out, const void *value, size_t known);

/* No version of any structure is larger by this much: such a size was never set. */
#define WR_SIZED_MORE_MAX 4096

#endif
