/*
 * skyline: how high the sections of a layout are taken, for blocks that are put on top one after the other. A tree over
 * the sections, so that it does not matter how long a block lives.
 * Owner: the caller of skyline_init, until skyline_release. One thread uses it.
 */
#ifndef WEIR_TOOLS_PLAN_SKYLINE_H
#define WEIR_TOOLS_PLAN_SKYLINE_H

#include "plan/layout.h"

/* Node 1 is the root; the leaves are the sections. */
typedef struct skyline {
    uint64_t *raised;  /* by node: all sections below are at least so high */
    uint64_t *highest; /* by node: the highest section below, as far as that is known there */
    size_t leaves;
} skyline;

/* Nothing is taken at first. */
void skyline_init(skyline *s, uint32_t sections);
void skyline_release(skyline *s);

/* Puts a block on top of all that is taken where it lives, and returns its offset. */
uint64_t skyline_put(skyline *s, const plan_block *b);

/* The height of each section. */
void skyline_read(const skyline *s, uint32_t sections, uint64_t *heights);

#endif
