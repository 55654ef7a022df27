/*
 * sized: structures of the program's that begin with their size, as the header says that it was compiled with. A newer
 * header's may be larger: what this library does not know of them may not be asked of it, and it fills in zeros.
 */
#ifndef WR_BASE_SIZED_H
#define WR_BASE_SIZED_H

#include "base/status.h"

#include <stddef.h>

/* Refuses NULL, a size that is none, and, where the program says what it wants (`init` names the initialiser), members that are
 * not known, unless they are zero. */
WR_CHECKED weir_status wr_sized_check_out(const char *call, const char *type, const void *out, size_t known);
WR_CHECKED weir_status wr_sized_check_in(const char *call, const char *name, const char *init, const void *in,
                                         size_t known);

/* Where the first byte is that is not known and not zero; 0: there is none. */
size_t wr_sized_unknown(const void *structure, size_t size, size_t known);

/* `out`, which was checked, becomes `value`, which is of the known size, but keeps its own size, and what is not known is zero. */
void wr_sized_give(void *out, const void *value, size_t known);

/* No version of any structure comes near so much more; it is a size that was never set. */
#define WR_SIZED_MORE_MAX 4096

/* What a later version appends to a structure fills whole words, as all of them do now: what compilers leave between or behind
 * members may be anything. */

#endif
