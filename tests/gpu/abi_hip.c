/*
 * Compares what weir, and the stand-in for tests, say about AMD's runtime with the vendor's own headers: every number,
 * every layout, and the signature of every function. Compiled only; there is nothing to run.
 */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINCE_6 (HIP_VERSION >= 60000000)
#if SINCE_6
#undef hipDeviceProp_t
#undef hipGetDeviceProperties
#include <hip/hip_deprecated.h>
#define hipGetDeviceProperties hipGetDevicePropertiesR0000 /* the export of the plain name */
#else
/* What ROCm 5 does not have, or has otherwise and weir does not use there. */
#define hipDeviceProp_tR0000 hipDeviceProp_t
#define hipDeviceProp_tR0600 void
hipError_t hipGetDevicePropertiesR0600(void *properties, int device);
enum { hipDeviceAttributeVirtualMemoryManagementSupported = 89 };
#if HIP_VERSION < 50300000
typedef void (*hipHostFn_t)(void *argument);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *argument);
#endif
#endif

#if HIP_VERSION < 71400000 /* which has it */
#define hipErrorStreamDetached 916
#endif
#define X(name, value) _Static_assert((value) == (name), #name);
#include "backend/hip/constants.def"
#undef X
#define X(name, value, status, ends) _Static_assert((value) == (name), #name);
#include "backend/hip/errors.def"
#undef X
#define X(name, number, value) _Static_assert((number) == (name), #name);
#include "standin/hip/attributes.def"
#undef X

/* With the vendor's types in the place of weir's. */
#define X(need, result, name, parameters)                                                                              \
    _Static_assert(__builtin_types_compatible_p(result(*) parameters, __typeof__(&(name))), #name);
#include "backend/hip/symbols.def"
#undef X

#if SINCE_6
#define X(member, type, old_offset, new_offset, value)                                                                 \
    _Static_assert(offsetof(hipDeviceProp_tR0000, member) == (old_offset), #member);                                   \
    _Static_assert(offsetof(hipDeviceProp_tR0600, member) == (new_offset), #member);                                   \
    _Static_assert(sizeof(type) == sizeof(((hipDeviceProp_tR0600 *)NULL)->member), #member);
#else
#define X(member, type, old_offset, new_offset, value)                                                                 \
    _Static_assert(offsetof(hipDeviceProp_tR0000, member) == (old_offset), #member);
#endif
#include "standin/hip/properties.def"
#undef X

/* weir's types, under other names. */
#define hipError_t weir_hipError_t
#define hipDevice_t weir_hipDevice_t
#define hipDeviceAttribute_t weir_hipDeviceAttribute_t
#define hipMemcpyKind weir_hipMemcpyKind
#define hipStreamCaptureMode weir_hipStreamCaptureMode
#define hipStreamCaptureStatus weir_hipStreamCaptureStatus
#define hipMemAllocationGranularity_flags weir_hipMemAllocationGranularity_flags
#define hipStream_t weir_hipStream_t
#define hipEvent_t weir_hipEvent_t
#define hipGraph_t weir_hipGraph_t
#define hipGraphExec_t weir_hipGraphExec_t
#define hipMemGenericAllocationHandle_t weir_hipMemGenericAllocationHandle_t
#define hipHostFn_t weir_hipHostFn_t
#define hipStreamCallback_t weir_hipStreamCallback_t
#define hipMemLocation weir_hipMemLocation
#define hipMemAllocationProp weir_hipMemAllocationProp
#define hipMemAccessDesc weir_hipMemAccessDesc
#undef hipDeviceProp_tR0000
#undef hipDeviceProp_tR0600
#define hipDeviceProp_tR0000 weir_hipDeviceProp_tR0000
#define hipDeviceProp_tR0600 weir_hipDeviceProp_tR0600
#include "backend/hip/types.h"
#undef hipError_t
#undef hipDevice_t
#undef hipDeviceAttribute_t
#undef hipMemcpyKind
#undef hipStreamCaptureMode
#undef hipStreamCaptureStatus
#undef hipMemAllocationGranularity_flags
#undef hipStream_t
#undef hipEvent_t
#undef hipGraph_t
#undef hipGraphExec_t
#undef hipMemGenericAllocationHandle_t
#undef hipHostFn_t
#undef hipStreamCallback_t
#undef hipMemLocation
#undef hipMemAllocationProp
#undef hipMemAccessDesc
#undef hipDeviceProp_tR0000
#undef hipDeviceProp_tR0600

#define SAME_SIZE(type) _Static_assert(sizeof(type) == sizeof(weir_##type), #type)
#define SAME_PLACE(type, member)                                                                                       \
    _Static_assert(offsetof(type, member) == offsetof(weir_##type, member), #type "." #member)
SAME_SIZE(hipError_t);
SAME_SIZE(hipDevice_t);
SAME_SIZE(hipDeviceAttribute_t);
SAME_SIZE(hipStreamCaptureMode);
SAME_SIZE(hipStreamCaptureStatus);
SAME_SIZE(hipMemGenericAllocationHandle_t);
#if SINCE_6
SAME_SIZE(hipMemcpyKind);
SAME_SIZE(hipMemAllocationGranularity_flags);
SAME_SIZE(hipMemLocation);
SAME_SIZE(hipMemAllocationProp);
SAME_SIZE(hipMemAccessDesc);
SAME_PLACE(hipMemLocation, type);
SAME_PLACE(hipMemLocation, id);
SAME_PLACE(hipMemAllocationProp, type);
SAME_PLACE(hipMemAllocationProp, location);
SAME_PLACE(hipMemAllocationProp, win32HandleMetaData);
SAME_PLACE(hipMemAllocationProp, allocFlags);
SAME_PLACE(hipMemAllocationProp, allocFlags.usage);
SAME_PLACE(hipMemAccessDesc, location);
SAME_PLACE(hipMemAccessDesc, flags);
SAME_SIZE(hipDeviceProp_tR0000);
SAME_SIZE(hipDeviceProp_tR0600);
SAME_PLACE(hipDeviceProp_tR0000, gcnArchName);
SAME_PLACE(hipDeviceProp_tR0600, gcnArchName);
#else
_Static_assert(sizeof(hipDeviceProp_t) == sizeof(weir_hipDeviceProp_tR0000), "hipDeviceProp_t");
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == offsetof(weir_hipDeviceProp_tR0000, gcnArchName), "its name");
#endif
