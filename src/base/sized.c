#include "base/sized.h"

#include <string.h>

static size_t size_of(const void *structure)
{
    size_t size = 0;
    memcpy(&size, structure, sizeof size);
    return size;
}

static bool is_size(size_t size, size_t known)
{
    return size >= known && size - known <= WR_SIZED_MORE_MAX;
}

size_t wr_sized_unknown(const void *structure, size_t size, size_t known)
{
    const unsigned char *bytes = structure;
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0) return i;
    return 0;
}

weir_status wr_sized_check_out(const char *call, const char *type, const void *out, size_t known)
{
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "%s: out is NULL", call);
    WR_ENSURE(is_size(size_of(out), known), WEIR_ERR_INVALID_ARGUMENT,
              "%s: out->size is %zu, but should be %zu; set it to sizeof(%s) before the call", call, size_of(out),
              known, type);
    return WEIR_OK;
}

weir_status wr_sized_check_in(const char *call, const char *name, const char *init, const void *in, size_t known)
{
    WR_ENSURE(in, WEIR_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call, name);
    const size_t size = size_of(in);
    WR_ENSURE(is_size(size, known), WEIR_ERR_INVALID_ARGUMENT,
              "%s: %s->size is %zu, but should be %zu; initialise with %s", call, name, size, known, init);
    const size_t unknown = wr_sized_unknown(in, size, known);
    WR_ENSURE(unknown == 0, WEIR_ERR_INVALID_ARGUMENT,
              "%s: *%s sets a member at byte %zu that this version of weir (%zu bytes) does not know; leave it zero or "
              "use a newer weir",
              call, name, unknown, known);
    return WEIR_OK;
}

void wr_sized_give(void *out, const void *value, size_t known)
{
    const size_t size = size_of(out);
    memcpy(out, value, known);
    memcpy(out, &size, sizeof size);
    memset((char *)out + known, 0, size - known);
}
