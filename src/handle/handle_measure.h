/*
 * handle_measure: how much device memory creating a handle took, by the driver's figures before and after it, without
 * what weir itself took or gave back meanwhile. Creates that overlap share it, unless an earlier one that ran alone
 * gives a figure.
 * Owner: the caller. Lock: none is held.
 */
#ifndef WR_HANDLE_HANDLE_MEASURE_H
#define WR_HANDLE_HANDLE_MEASURE_H

#include "handle/handle.h"

typedef struct wr_handle_measure {
    uint64_t free_before, held_before;
    uint32_t serial, others;
} wr_handle_measure;

wr_handle_measure wr_handle_measure_begin(const wr_handle_pool *pool);

/* Before a second try, for which memory was given back. */
void wr_handle_measure_again(const wr_handle_pool *pool, wr_handle_measure *measure);

/* The bytes that it took. */
uint64_t wr_handle_measure_end(wr_handle_pool *pool, const wr_handle_measure *measure);

#endif
