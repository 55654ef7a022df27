/*
 * library_support: rows of the table of vendor libraries, working on stand-ins, for the test_library*.c files.
 */
#ifndef WEIR_TESTS_UNIT_LIBRARY_SUPPORT_H
#define WEIR_TESTS_UNIT_LIBRARY_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/library.h"
#include "base/meta.h"
#include "standin/standin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 17 };

static const weir_handle_kind kinds[KINDS] = {
    WEIR_CUBLAS,    WEIR_CUBLASLT,  WEIR_CUSPARSE,  WEIR_CUSOLVER_DN, WEIR_CUSOLVER_SP, WEIR_CUDNN,
    WEIR_CUDSS,     WEIR_CURAND,    WEIR_CUTENSOR,  WEIR_MIOPEN,      WEIR_ROCBLAS,     WEIR_HIPBLAS,
    WEIR_HIPBLASLT, WEIR_ROCSPARSE, WEIR_HIPSPARSE, WEIR_HIPSOLVER,   WEIR_ROCRAND,
};

/* A device on which all of AMD's libraries may end the process at create that ever do. */
static const weir_device_caps gfx950 = { .compute_major = 9, .compute_minor = 5 };

static inline const wr_library_row *row_of(weir_handle_kind kind)
{
    for (size_t i = 0; i < wr_cuda_kind_count; i++)
        if (wr_cuda_kinds[i].kind == kind) return &wr_cuda_kinds[i];
    for (size_t i = 0; i < wr_hip_kind_count; i++)
        if (wr_hip_kinds[i].kind == kind) return &wr_hip_kinds[i];
    fail_msg("no row for kind %d", (int)kind);
    return NULL;
}

/* A copy of the row, not loaded yet, that a test may change; lives as long as the program. */
static inline wr_library_row *copy_of(weir_handle_kind kind)
{
    static wr_library_row copies[WEIR_HANDLE_KIND_MAX];
    static weir_handle_kind next = WEIR_HANDLE_KIND_FIRST_USER;
    assert_true(next < WEIR_HANDLE_KIND_MAX);
    wr_library_row *row = &copies[next];
    *row = *row_of(kind);
    row->kind = next++;
    return row;
}

/* The row's variable, as "WEIR_LIB_CUSOLVER". */
static inline void variable_of(const wr_library_row *row, char variable[64])
{
    snprintf(variable, 64, "WEIR_LIB_%s", row->library != NULL ? row->library : row->name);
    for (char *c = variable; *c != '\0'; c++) *c = (char)toupper((unsigned char)*c);
}

static inline void point_to(const wr_library_row *row, const char *file)
{
    char variable[64];
    variable_of(row, variable);
    if (file != NULL)
        assert_int_equal(setenv(variable, file, 1), 0);
    else
        assert_int_equal(unsetenv(variable), 0);
}

/* "<folder>/libcusparse.so" for a row whose libraries are called libcusparse.so.12 and so on. */
static inline void standin_file(const wr_library_row *row, char file[512])
{
    int length = (int)(strstr(row->sonames[0], ".so") - row->sonames[0]);
    snprintf(file, 512, "%s/%.*s.so", WEIR_TEST_STANDINS, length, row->sonames[0]);
}

/* The row's kind, loaded from its stand-in, whose state is reset. */
static inline wr_kind *loaded(const wr_library_row *row, standin *commands)
{
    char file[512];
    wr_kind *kind = NULL;
    standin_file(row, file);
    point_to(row, file);
    assert_int_equal(wr_library_kind(row, &kind), WEIR_OK);
    weir_status status = kind->load(kind->self);
    if (status != WEIR_OK) fail_msg("%s: %s", row->name, weir_error_text());
    assert_int_equal(standin_open(commands, file), 0);
    commands->reset();
    return kind;
}

static inline void *created(const wr_kind *kind)
{
    void *handle = NULL;
    assert_int_equal(kind->create(kind->self, 0, &gfx950, &handle), 0);
    assert_non_null(handle);
    return handle;
}

static inline void destroyed(const wr_kind *kind, standin *commands, void *handle)
{
    assert_int_equal(kind->destroy(kind->self, handle), 0);
    assert_int_equal(commands->live(), 0);
    assert_int_equal(commands->misuse(), 0);
}

#endif
