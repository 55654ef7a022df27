/*
 * Compares what weir says about the driver's interface with the vendor's own headers: every number, every layout, and
 * the signature of every function at the version that is asked for. Compiled only; there is nothing to run.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Older headers lack the newest codes. */
#if CUDA_VERSION >= 13000

#if CUDA_VERSION < 13010
#define CUDA_ERROR_STREAM_DETACHED 917
#endif
#define X(name, value) _Static_assert((value) == (name), #name);
#include "backend/cuda/constants.def"
#undef X
#define X(name, value, status, ends) _Static_assert((value) == (name), #name);
#include "backend/cuda/errors.def"
#undef X

/* With the vendor's types in the place of weir's. The header's macros must not reach the names. Of a function of which
 * weir has both versions the later one has its suffix in weir's name, and not in the header's. */
#undef cuStreamGetCtx_v2
#define PFN_cuStreamGetCtx_v2_v12050 PFN_cuStreamGetCtx_v12050
#define X(need, name, suffix, version, parameters)                                                                     \
    _Static_assert(__builtin_types_compatible_p(CUresult(*) parameters, PFN_##name##_v##version), #name);
#include "backend/cuda/symbols.def"
#undef X
_Static_assert(CU_GET_PROC_ADDRESS_SUCCESS == 0, "result of cuGetProcAddress");
_Static_assert(CU_STREAM_LEGACY == (CUstream)1, "the default stream's other name");

/* weir's types, under other names. */
#define CUresult weir_CUresult
#define CUdevice weir_CUdevice
#define CUdevice_attribute weir_CUdevice_attribute
#define CUstreamCaptureMode weir_CUstreamCaptureMode
#define CUstreamCaptureStatus weir_CUstreamCaptureStatus
#define CUmemAllocationGranularity_flags weir_CUmemAllocationGranularity_flags
#define CUmemAllocationHandleType weir_CUmemAllocationHandleType
#define CUdriverProcAddressQueryResult weir_CUdriverProcAddressQueryResult
#define cuuint64_t weir_cuuint64_t
#undef CUdeviceptr
#define CUdeviceptr weir_CUdeviceptr
#define CUmemGenericAllocationHandle weir_CUmemGenericAllocationHandle
#define CUhostFn weir_CUhostFn
#define CUmemLocation weir_CUmemLocation
#define CUmemAllocationProp weir_CUmemAllocationProp
#define CUmemAccessDesc weir_CUmemAccessDesc
#define CUcontext weir_CUcontext
#define CUstream weir_CUstream
#define CUevent weir_CUevent
#define CUgraph weir_CUgraph
#define CUgraphNode weir_CUgraphNode
#define CUgraphExec weir_CUgraphExec
#include "backend/cuda/types.h"
#undef CUresult
#undef CUdevice
#undef CUdevice_attribute
#undef CUstreamCaptureMode
#undef CUstreamCaptureStatus
#undef CUmemAllocationGranularity_flags
#undef CUmemAllocationHandleType
#undef CUdriverProcAddressQueryResult
#undef cuuint64_t
#undef CUdeviceptr
#undef CUmemGenericAllocationHandle
#undef CUhostFn
#undef CUmemLocation
#undef CUmemAllocationProp
#undef CUmemAccessDesc
#undef CUcontext
#undef CUstream
#undef CUevent
#undef CUgraph
#undef CUgraphNode
#undef CUgraphExec

#define SAME_SIZE(type) _Static_assert(sizeof(type) == sizeof(weir_##type), #type)
SAME_SIZE(CUresult);
SAME_SIZE(CUdevice);
SAME_SIZE(CUdevice_attribute);
SAME_SIZE(CUstreamCaptureMode);
SAME_SIZE(CUstreamCaptureStatus);
SAME_SIZE(CUmemAllocationGranularity_flags);
SAME_SIZE(CUmemAllocationHandleType);
SAME_SIZE(CUdriverProcAddressQueryResult);
SAME_SIZE(cuuint64_t);
_Static_assert(sizeof(CUdeviceptr_v2) == sizeof(weir_CUdeviceptr), "CUdeviceptr");
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(CUmemLocation);
SAME_SIZE(CUmemAllocationProp);
SAME_SIZE(CUmemAccessDesc);

#define SAME_PLACE(type, member)                                                                                       \
    _Static_assert(offsetof(type, member) == offsetof(weir_##type, member), #type "." #member)
SAME_PLACE(CUmemLocation, type);
SAME_PLACE(CUmemLocation, id);
SAME_PLACE(CUmemAllocationProp, type);
SAME_PLACE(CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(CUmemAllocationProp, location);
SAME_PLACE(CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(CUmemAllocationProp, allocFlags);
SAME_PLACE(CUmemAllocationProp, allocFlags.usage);
SAME_PLACE(CUmemAccessDesc, location);
SAME_PLACE(CUmemAccessDesc, flags);

#endif
