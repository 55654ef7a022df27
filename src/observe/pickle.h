/*
 * pickle: writes values as Python's pickle, protocol 2: only what PyTorch's memory snapshots are made of, in the
 * opcodes that PyTorch's browser viewer can read.
 * A dict: begin, then keys and values in turn, end. A list: begin, then each item after wr_pickle_item(), end.
 */
#ifndef WR_OBSERVE_PICKLE_H
#define WR_OBSERVE_PICKLE_H

#include "observe/output.h"

#include <stdbool.h>
#include <stdint.h>

/* Words, strings that come again and again, are written once; their numbers are below this. */
#define WR_PICKLE_WORDS 128

typedef struct wr_pickle {
    wr_output *out;
    bool known[WR_PICKLE_WORDS];
} wr_pickle;

/* Counts the items of a list since its last batch. */
typedef struct wr_pickle_list {
    unsigned open;
} wr_pickle_list;

void wr_pickle_begin(wr_pickle *p, wr_output *out);
void wr_pickle_end(wr_pickle *p);

/* Keeps the value written last under a number that no word has; wr_pickle_again() then stands for the value. */
void wr_pickle_keep(wr_pickle *p, uint32_t number);
void wr_pickle_again(wr_pickle *p, uint32_t number);

void wr_pickle_word(wr_pickle *p, unsigned number, const char *text);
void wr_pickle_string(wr_pickle *p, const char *text, size_t length); /* as wr_output_text() */
void wr_pickle_unsigned(wr_pickle *p, uint64_t number);
void wr_pickle_signed(wr_pickle *p, int64_t number);
void wr_pickle_bool(wr_pickle *p, bool value);
void wr_pickle_real(wr_pickle *p, double value);
void wr_pickle_pair(wr_pickle *p, uint64_t first, uint64_t second); /* a tuple */

void wr_pickle_dict_begin(wr_pickle *p);
void wr_pickle_dict_end(wr_pickle *p);
void wr_pickle_list_begin(wr_pickle *p, wr_pickle_list *list);
void wr_pickle_item(wr_pickle *p, wr_pickle_list *list);
void wr_pickle_list_end(wr_pickle *p, const wr_pickle_list *list);

#endif
