#include "observe/pickle.h"

#include "base/utf8.h"

#include <assert.h>
#include <string.h>

/* Items appended to a list at once: readers put these on their stack. */
enum { BATCH = 1000 };

enum opcode {
    MARK = '(',
    STOP = '.',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    BINGET = 'h',
    BINPUT = 'q',
    LONG_BINGET = 'j',
    LONG_BINPUT = 'r',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    PROTO = 0x80,
    TUPLE2 = 0x86,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a
};

static void put(wr_pickle *p, unsigned char byte)
{
    wr_output_byte(p->out, byte);
}

static void put_little_endian(wr_pickle *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) put(p, (unsigned char)(value >> 8 * i));
}

void wr_pickle_begin(wr_pickle *p, wr_output *out)
{
    *p = (wr_pickle){ .out = out };
    put(p, PROTO);
    put(p, 2);
}

void wr_pickle_end(wr_pickle *p)
{
    put(p, STOP);
}

void wr_pickle_string(wr_pickle *p, const char *text, size_t length)
{
    put(p, BINUNICODE);
    put_little_endian(p, wr_utf8_bytes(text, length), 4);
    wr_output_text(p->out, text, length);
}

void wr_pickle_word(wr_pickle *p, unsigned number, const char *text)
{
    assert(number < WR_PICKLE_WORDS);
    if (!p->known[number]) wr_pickle_string(p, text, strlen(text));
    put(p, p->known[number] ? BINGET : BINPUT);
    put(p, (unsigned char)number);
    p->known[number] = true;
}

void wr_pickle_keep(wr_pickle *p, uint32_t number)
{
    put(p, LONG_BINPUT);
    put_little_endian(p, number, 4);
}

void wr_pickle_again(wr_pickle *p, uint32_t number)
{
    put(p, LONG_BINGET);
    put_little_endian(p, number, 4);
}

/* Two's complement, in the fewest bytes that keep the sign. */
static void put_long(wr_pickle *p, uint64_t value, bool negative)
{
    const unsigned fill = negative ? 0xff : 0;
    int bytes = 8;
    while (bytes > 1 && (value >> 8 * (bytes - 1) & 0xff) == fill &&
           (value >> (8 * (bytes - 1) - 1) & 1) == (negative ? 1u : 0u))
        bytes--;
    const bool needs_sign = !negative && value >> 63;
    put(p, LONG1);
    put(p, (unsigned char)(bytes + needs_sign));
    put_little_endian(p, value, bytes);
    if (needs_sign) put(p, 0);
}

void wr_pickle_unsigned(wr_pickle *p, uint64_t number)
{
    if (number <= UINT8_MAX) {
        put(p, BININT1);
        put_little_endian(p, number, 1);
    } else if (number <= UINT16_MAX) {
        put(p, BININT2);
        put_little_endian(p, number, 2);
    } else if (number <= INT32_MAX) {
        put(p, BININT);
        put_little_endian(p, number, 4);
    } else {
        put_long(p, number, false);
    }
}

void wr_pickle_signed(wr_pickle *p, int64_t number)
{
    if (number >= 0) {
        wr_pickle_unsigned(p, (uint64_t)number);
    } else if (number >= INT32_MIN) {
        put(p, BININT);
        put_little_endian(p, (uint64_t)number, 4);
    } else {
        put_long(p, (uint64_t)number, true);
    }
}

void wr_pickle_bool(wr_pickle *p, bool value)
{
    put(p, value ? NEWTRUE : NEWFALSE);
}

void wr_pickle_real(wr_pickle *p, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(p, BINFLOAT);
    for (int i = 7; i >= 0; i--) put(p, (unsigned char)(bits >> 8 * i));
}

void wr_pickle_pair(wr_pickle *p, uint64_t first, uint64_t second)
{
    wr_pickle_unsigned(p, first);
    wr_pickle_unsigned(p, second);
    put(p, TUPLE2);
}

void wr_pickle_dict_begin(wr_pickle *p)
{
    put(p, EMPTY_DICT);
    put(p, MARK);
}

void wr_pickle_dict_end(wr_pickle *p)
{
    put(p, SETITEMS);
}

void wr_pickle_list_begin(wr_pickle *p, wr_pickle_list *list)
{
    list->open = 0;
    put(p, EMPTY_LIST);
}

void wr_pickle_item(wr_pickle *p, wr_pickle_list *list)
{
    if (list->open == BATCH) {
        put(p, APPENDS);
        list->open = 0;
    }
    if (list->open++ == 0) put(p, MARK);
}

void wr_pickle_list_end(wr_pickle *p, const wr_pickle_list *list)
{
    if (list->open) put(p, APPENDS);
}
