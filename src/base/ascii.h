/*
 * ascii: capital and small letters of the names that weir has itself, the same whatever the program's locale says: in a
 * Turkish one toupper('i') is no I. No state.
 */
#ifndef WR_BASE_ASCII_H
#define WR_BASE_ASCII_H

static inline char wr_ascii_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static inline char wr_ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

#endif
