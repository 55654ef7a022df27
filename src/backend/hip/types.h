/*
 * types: the runtime's types and numbers, as far as weir uses them, so that no vendor header is needed. The names of
 * types are the runtime's own; enumerations are int, which is what they are at the call boundary. Where AMD's headers
 * are installed, tests/gpu/abi_hip.c compares everything with them.
 */
#ifndef WR_BACKEND_HIP_TYPES_H
#define WR_BACKEND_HIP_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef int hipDevice_t;
typedef int hipDeviceAttribute_t;
typedef int hipMemcpyKind;
typedef int hipStreamCaptureMode;
typedef int hipStreamCaptureStatus;
typedef int hipMemAllocationGranularity_flags;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct ihipMemGenericAllocationHandle *hipMemGenericAllocationHandle_t;
typedef void (*hipHostFn_t)(void *argument);
typedef void (*hipStreamCallback_t)(hipStream_t stream, hipError_t status, void *argument);

typedef struct hipMemLocation {
    int type;
    int id;
} hipMemLocation;

/* From ROCm 6 on. ROCm 5 has these members in another order, which is one reason why virtual memory is not used
 * there. */
typedef struct hipMemAllocationProp {
    int type;
    int requestedHandleType;
    hipMemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
    } allocFlags;
} hipMemAllocationProp;

typedef struct hipMemAccessDesc {
    hipMemLocation location;
    int flags;
} hipMemAccessDesc;

/* For the one property of a device that no other function tells: "gfx90a:sramecc+:xnack-". The structure is as large as
 * the runtime's; ROCm 6 changed it and gave the function that fills it another name. */
typedef struct hipDeviceProp_tR0000 {
    uint64_t before[49];
    char padding[4];
    char gcnArchName[256];
    char after[140];
} hipDeviceProp_tR0000;

typedef struct hipDeviceProp_tR0600 {
    uint64_t before[145];
    char gcnArchName[256];
    char after[56];
} hipDeviceProp_tR0600;

enum {
#define X(name, value) WR_##name = (value),
#include "backend/hip/constants.def"
#undef X
#define X(name, value, status, ends) WR_##name = (value),
#include "backend/hip/errors.def"
#undef X
};

#endif
