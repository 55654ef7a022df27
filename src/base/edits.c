#include "base/edits.h"

enum { NAME_MAX_COMPARED = 48 };

size_t wr_edits(const char *name, size_t length, const char *known)
{
    size_t row[NAME_MAX_COMPARED + 1];
    if (length > NAME_MAX_COMPARED) length = NAME_MAX_COMPARED;
    for (size_t i = 0; i <= length; i++) row[i] = i;

    for (size_t k = 0; known[k] != '\0'; k++) {
        size_t diagonal = row[0];
        row[0] = k + 1;
        for (size_t i = 1; i <= length; i++) {
            size_t best = diagonal + (name[i - 1] != known[k]);
            if (row[i] + 1 < best) best = row[i] + 1;
            if (row[i - 1] + 1 < best) best = row[i - 1] + 1;
            diagonal = row[i];
            row[i] = best;
        }
    }
    return row[length];
}
