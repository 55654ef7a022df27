/*
 * library: vendor libraries as kinds of handles. One row describes a library; one implementation of wr_kind serves all
 * rows. Rows of NVIDIA's libraries are in cuda/kinds.c, of AMD's in hip/kinds.c, and nowhere else.
 * Owner: static tables; a loaded library stays loaded for the life of the process (exit hooks forbid unloading).
 * Lock: a leaf lock per row guards loading; afterwards the symbols are constant. Another, for the process, guards
 * changes of the environment around a create. A failed load leaves nothing behind; the next use tries again.
 */
#ifndef WR_BACKEND_LIBRARY_H
#define WR_BACKEND_LIBRARY_H

#include "backend/kind.h"

/* Shapes of functions that differ between libraries. */
typedef enum wr_version_form {
    WR_VERSION_NONE,
    WR_VERSION_INT,      /* int f(int *version) */
    WR_VERSION_PROPERTY, /* int f(int property, int *value): 0 major, 1 minor, 2 patch */
    WR_VERSION_SIZE,     /* size_t f(void) */
    WR_VERSION_TRIPLE,   /* int f(size_t *major, size_t *minor, size_t *patch) */
    WR_VERSION_STRING    /* int f(char *text, size_t bytes) */
} wr_version_form;

typedef enum wr_reset_form {
    WR_RESET_END,
    WR_RESET_INT,     /* int f(handle, int) */
    WR_RESET_U64,     /* int f(handle, unsigned long long) */
    WR_RESET_BOOL,    /* int f(handle, bool) */
    WR_RESET_POINTER, /* int f(handle, void *), with NULL */
    WR_RESET_TO_FRESH /* as INT, with what the row's `fresh_value` told of the last handle when it was new */
} wr_reset_form;

/* State that the last owner may have changed, reset before the next one gets the handle. A symbol that the library does
 * not have (an older version) is skipped. */
typedef struct wr_reset {
    wr_reset_form form;
    const char *symbol;
    uint64_t value;
} wr_reset;

typedef enum wr_memory_form {
    WR_MEMORY_NONE,
    WR_MEMORY_CUDSS, /* int f(handle, const cudssDeviceMemHandler_t *) */
    WR_MEMORY_MIOPEN /* int f(handle, alloc, free, context) */
} wr_memory_form;

typedef struct wr_library_row {
    weir_handle_kind kind;
    const char *name;       /* "cusolver_dn" */
    const char *library;    /* "cusolver", if it differs from the name: WEIR_LIB_CUSOLVER points to a file */
    const char *sonames[8]; /* newest first */

    const char *create, *destroy; /* int f(handle *), int f(handle) */
    bool create_has_argument;     /* int f(handle *, int) */
    int create_argument;          /* cuRAND: the generator's type */
    /* Set around the create and then restored: turns off the library's own workspace. NULL: nothing to set. */
    const char *environment, *environment_value;
    int out_of_memory[3]; /* what create returns when it lacks device memory; ended by 0 or full */
    bool keeps_failed;    /* the library documents that a failed create's handle must be destroyed (cuDSS 1.0) */

    /* For libraries that end the process when their runtime refuses a call: three functions of that runtime, found in
     * the library or in what it loaded. Each may be NULL: not needed. */
    const char *device_count; /* int f(int *): nothing is created when it counts no device */
    const char *memory_info;  /* int f(size_t *free, size_t *total): nor when fewer bytes are free than */
    size_t memory_needed;     /* these, which is out of memory */
    /* The devices on which its create may end it; NULL: all. On others neither the memory nor WEIR_HANDLE_CREATE_SYNCS
     * matters. */
    bool (*create_may_end_it)(const weir_device_caps *caps);
    const char *end_variable; /* if set: on all devices where it begins with 1, else on none. NULL: there is none */
    const char *free_memory;  /* int f(void *): no handle is destroyed while it refuses to free NULL */

    /* Of a runtime that keeps the thread's last error until it is asked for: int f(void) each. */
    const char *peek_error, *take_error;
    /* Sonames of that runtime, only one of which may be in a process; NULL-terminated. NULL: it does not matter. */
    const char *const *runtimes;

    const char *set_stream; /* int f(handle, stream); NULL: the stream is an argument of every call */
    bool has_own_memory;    /* without set_stream: a handle has device memory that two streams must not share */
    wr_reset reset[12];     /* ended by WR_RESET_END */
    /* int f(handle, int *), for the setting that new handles have by the library's version or the environment */
    const char *fresh_value;

    /* Symbols that an old version may lack: its handles then keep the library's own workspace or allocator. */
    const char *set_workspace;                               /* int f(handle, void *, size_t) */
    size_t (*workspace_bytes)(const weir_device_caps *caps); /* where the environment does not ask for a size */
    const char *workspace_variables[4];                      /* that may: the first that is set; ended by NULL */
    const char *set_memory;
    wr_memory_form memory_form;

    const char *version;
    wr_version_form version_form;
    const char *error_text;   /* const char *f(int code); NULL or absent: `codes` */
    const char *const *codes; /* "3 invalid value", ..., NULL */
    uint32_t flags;           /* WEIR_HANDLE_* */
} wr_library_row;

/* Weir's own codes, which a kind's create and destroy return besides the library's. */
enum {
    WR_LIBRARY_NO_HANDLE = -1,  /* the library returned success but no handle (hipSPARSE without a GPU) */
    WR_LIBRARY_NO_DEVICE = -2,  /* `device_count` counted none */
    WR_LIBRARY_NO_MEMORY = -3,  /* no host memory for changing the environment */
    WR_LIBRARY_LOW_MEMORY = -4, /* less than `memory_needed` is free; counts as out of memory */
    WR_LIBRARY_KEPT = -5,       /* not destroyed, because `free_memory` refused */
    WR_LIBRARY_NO_ANSWER = -6   /* `memory_info` refused, and so may what the library asks */
};

extern const wr_library_row wr_cuda_kinds[];
extern const size_t wr_cuda_kind_count;
extern const wr_library_row wr_hip_kinds[];
extern const size_t wr_hip_kind_count;
extern const char *const wr_hip_sonames[]; /* of AMD's runtime, newest first; NULL-terminated */

/* Refuses when two of `sonames` are in the process. `file` is the library `name`, which may have loaded the second. */
WR_CHECKED weir_status wr_library_one_runtime(const char *name, void *file, const char *const *sonames);

/* The kind for a row. One per row, for the life of the process. */
WR_CHECKED weir_status wr_library_kind(const wr_library_row *row, wr_kind **kind);

/* Whether no thread is loading a library or looking for one. For a child of fork. */
bool wr_library_at_rest(void);

#endif
