/*
 * pickle_text: the decimal numbers and escaped strings of pickle protocol 0. Pure functions.
 */
#ifndef WEIR_TOOLS_INPUT_PICKLE_TEXT_H
#define WEIR_TOOLS_INPUT_PICKLE_TEXT_H

#include "pickle.h"

/* Decimal digits with an optional sign. *wide: valid, but too large for 64 bits; *out is untouched. */
bool pickle_text_number(const uint8_t *text, size_t length, pickle_value *out, bool *wide);

bool pickle_text_float(const uint8_t *text, size_t length, double *out);

/* Raw-unicode-escape (opcode UNICODE) to UTF-8: `to` needs twice the length. False: a bad escape. */
bool pickle_text_unicode(const uint8_t *text, size_t length, char *to, size_t *to_length);

/* A quoted Python 2 string (opcode STRING): `to` needs the length. False: bad quotes or a bad escape. */
bool pickle_text_quoted(const uint8_t *text, size_t length, char *to, size_t *to_length);

#endif
