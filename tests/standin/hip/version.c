#include "standin/hip/standin_internal.h"

const int standin_hip_major = STANDIN_HIP_MAJOR;
