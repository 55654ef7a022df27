/*
 * native: numbers of PyTorch's native rules by which a recording is understood, unless its settings say otherwise.
 */
#ifndef WEIR_TOOLS_SCRIPT_NATIVE_H
#define WEIR_TOOLS_SCRIPT_NATIVE_H

#include <stdint.h>

#define NATIVE_UNIT UINT64_C(512)                 /* of sizes of blocks */
#define NATIVE_SEGMENT_UNIT (UINT64_C(2) << 20)   /* of sizes of segments */
#define NATIVE_SMALL_SEGMENT (UINT64_C(2) << 20)  /* of the pool for small blocks */
#define NATIVE_SMALL_MOST (UINT64_C(1) << 20)     /* the largest of those */
#define NATIVE_LARGE_SEGMENT (UINT64_C(20) << 20) /* of larger blocks up to half of that */
#define NATIVE_NON_SPLIT_ROUNDING (UINT64_C(20) << 20)

#endif
