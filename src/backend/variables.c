#include "backend/variables.h"

#include "backend/backend.h"
#include "backend/library.h"
#include "base/dl.h"
#include "base/edits.h"

#include <string.h>

typedef struct nearest {
    const char *name; /* the variable found */
    size_t length;
    size_t edits;
    char variable[WR_DL_VARIABLE]; /* the nearest known one */
} nearest;

static void compare(nearest *n, const char *known)
{
    char variable[WR_DL_VARIABLE];
    wr_dl_variable(known, variable);
    const size_t edits = wr_edits(n->name, n->length, variable);
    if (edits >= n->edits) return;
    n->edits = edits;
    memcpy(n->variable, variable, sizeof variable);
}

static void compare_rows(nearest *n, const wr_library_row *rows, size_t count)
{
    for (const wr_library_row *row = rows; row < rows + count; row++)
        compare(n, row->library ? row->library : row->name);
}

WR_CHECKED static weir_status check(const char *name, size_t length)
{
    nearest n = { .name = name, .length = length, .edits = SIZE_MAX };
    compare(&n, wr_backend_cuda.name);
    compare(&n, wr_backend_hip.name);
    compare_rows(&n, wr_cuda_kinds, wr_cuda_kind_count);
    compare_rows(&n, wr_hip_kinds, wr_hip_kind_count);
    WR_ENSURE(
        n.edits == 0 && strlen(n.variable) == length, WEIR_ERR_OPTION,
        "environment variable %.*s does not name a library that weir loads; the nearest is %s; rename or unset it",
        length < 100 ? (int)length : 100, name, n.variable);
    return WEIR_OK;
}

weir_status wr_variables_check(const char *const *environment)
{
    static const char prefix[] = "WEIR_LIB_";
    for (; environment && *environment; environment++)
        if (strncmp(*environment, prefix, sizeof prefix - 1) == 0)
            WR_TRY(check(*environment, strcspn(*environment, "=")));
    return WEIR_OK;
}
