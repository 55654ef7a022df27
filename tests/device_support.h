/*
 * device_support: the library's own records of a device, for tests that inspect them. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_DEVICE_SUPPORT_H
#define WEIR_TESTS_DEVICE_SUPPORT_H

#include "device/device.h"
#include "host_support.h"

static inline wr_device *device_0(void)
{
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    return device;
}

#endif
