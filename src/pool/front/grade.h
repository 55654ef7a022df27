/*
 * grade: the few sizes that a side of a front asks for where hardly any size is asked for twice (pool/front/side.h).
 * Each is at most an eighth more than the next smaller one, or WR_FRONT_QUANTUM more, and has a slot of its own in a
 * front. Constants.
 */
#ifndef WR_POOL_FRONT_GRADE_H
#define WR_POOL_FRONT_GRADE_H

#include <stddef.h>

#define WR_GRADES 62

/* The least grade of at least that many bytes; WR_GRADES: none is so large. */
unsigned wr_grade_of(size_t bytes);

/* 0 for WR_GRADES. */
size_t wr_grade_bytes(unsigned grade);

#endif
