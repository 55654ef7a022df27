/*
 * thread_number: a small number for the calling thread, for records that people read. From 1, never reused.
 */
#ifndef WR_BASE_THREAD_NUMBER_H
#define WR_BASE_THREAD_NUMBER_H

#include <stdint.h>

uint32_t wr_thread_number(void);

#endif
