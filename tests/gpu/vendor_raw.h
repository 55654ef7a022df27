/*
 * vendor_raw: the functions that create and destroy handles of one of NVIDIA's libraries, called without weir. They are
 * the functions named in weir's own table, from the file that weir would use.
 */
#ifndef WEIR_TESTS_GPU_VENDOR_RAW_H
#define WEIR_TESTS_GPU_VENDOR_RAW_H

#include "backend/library.h"
#include "weir/weir.h"

#include <dlfcn.h>
#include <string.h>

static struct {
    int (*create)(void **handle);
    int (*create_typed)(void **handle, int type); /* instead of create: cuRAND */
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream); /* NULL: the library has none */
    int type;
} raw;

/* False: the library is not present. */
static bool raw_find(const wr_library_row *row)
{
    weir_handle_kind_info info = { .size = sizeof info };
    if (weir_handle_kind_info_get(row->kind, &info) != WEIR_OK) return false;
    void *file = dlopen(info.library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    assert_non_null(file);
    memset(&raw, 0, sizeof raw);
    *(void **)(row->create_has_argument ? (void *)&raw.create_typed : (void *)&raw.create) = dlsym(file, row->create);
    *(void **)&raw.destroy = dlsym(file, row->destroy);
    if (row->set_stream != NULL) *(void **)&raw.set_stream = dlsym(file, row->set_stream);
    assert_true((raw.create != NULL || raw.create_typed != NULL) && raw.destroy != NULL);
    assert_true(row->set_stream == NULL || raw.set_stream != NULL);
    raw.type = row->create_argument;
    return true;
}

/* Ignores whatever a failed create leaves in its argument. */
static int raw_create(void **handle)
{
    void *made = NULL;
    const int code = raw.create != NULL ? raw.create(&made) : raw.create_typed(&made, raw.type);
    *handle = code == 0 ? made : NULL;
    return code;
}

#endif
