#include "base/dl.h"

#include "base/ascii.h"
#include "base/log.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASONS_SIZE = 768 };

/* What was tried and why it failed, a line each. */
typedef struct attempts {
    char text[REASONS_SIZE];
    size_t length;
} attempts;

void wr_dl_variable(const char *name, char variable[WR_DL_VARIABLE])
{
    snprintf(variable, WR_DL_VARIABLE, "WEIR_LIB_%s", name);
    for (char *c = variable; *c != '\0'; c++) *c = wr_ascii_upper(*c);
}

/* Drops the file's name from the front of the loader's reason, which mostly begins with it. */
static void add_reason(attempts *tried, const char *file, const char *reason)
{
    size_t name_length = strlen(file);
    if (strncmp(reason, file, name_length) == 0 && strncmp(reason + name_length, ": ", 2) == 0)
        reason += name_length + 2;

    size_t room = sizeof tried->text - tried->length;
    int added = snprintf(tried->text + tried->length, room, "\n  %s: %s", file, reason);
    if (added > 0) tried->length += (size_t)added < room ? (size_t)added : room - 1;
}

/* The loader's reason is that nothing has the file's name. That of a file whose own dependency is missing names the
 * dependency instead, and any other has a path. */
static bool is_absent(const char *file, const char *reason)
{
    const char *named = strstr(reason, file);
    return named && named[strlen(file)] == ':' && strchr(reason, '/') == NULL;
}

static void *try_load(const char *file, attempts *tried)
{
    if (file[0] == '\0') { /* dlopen would take it for the program itself */
        add_reason(tried, "\"\"", "no file name");
        return NULL;
    }
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        if (reason == NULL) reason = "unknown reason";
        add_reason(tried, file, reason);
        /* Where the search goes on without a file that is there, or was named with its path, or the host back end is
         * taken instead, that must not go unsaid. */
        if (!is_absent(file, reason)) wr_log(WR_LOG_WARN, "%s cannot be loaded: %s", file, reason);
    }
    return library;
}

void *wr_dl_present(const char *soname)
{
    return dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

weir_status wr_dl_open(const char *name, const char *const *sonames, void **library)
{
    attempts tried = { .length = 0 };
    char variable[WR_DL_VARIABLE];
    wr_dl_variable(name, variable);

    const char *chosen = secure_getenv(variable);
    if (chosen != NULL) {
        void *loaded = try_load(chosen, &tried);
        WR_ENSURE(loaded != NULL, WEIR_ERR_NO_LIBRARY,
                  "library %s not loaded; set %s to the path of a library that loads, or unset it; it names:%s", name,
                  variable, tried.text);
        *library = loaded;
        return WEIR_OK;
    }

    /* A library that the program has loaded already, from whatever folder, goes before what the loader would find. */
    for (const char *const *soname = sonames; *soname != NULL; soname++) {
        void *present = wr_dl_present(*soname);
        if (present == NULL) continue;
        *library = present;
        return WEIR_OK;
    }
    for (const char *const *soname = sonames; *soname != NULL; soname++) {
        void *loaded = try_load(*soname, &tried);
        if (loaded == NULL) continue;
        *library = loaded;
        return WEIR_OK;
    }
    return wr_fail(WEIR_ERR_NO_LIBRARY, "library %s not found; install it, or set %s to its path; tried:%s", name,
                   variable, tried.text);
}

static const char *file_name(void *library)
{
    struct link_map *map;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

weir_status wr_dl_symbol(void *library, const char *name, const char *symbol, void **address)
{
    void *found = dlsym(library, symbol);
    if (found != NULL) {
        *address = found;
        return WEIR_OK;
    }

    char variable[WR_DL_VARIABLE];
    wr_dl_variable(name, variable);
    return wr_fail(WEIR_ERR_INCOMPATIBLE,
                   "library %s (%s) has no symbol %s; set %s to the path of a version that has it", name,
                   file_name(library), symbol, variable);
}

void *wr_dl_find(void *library, const char *symbol)
{
    return dlsym(library, symbol);
}

void wr_dl_file(void *library, char *file, size_t size)
{
    snprintf(file, size, "%s", file_name(library));
}

void wr_dl_close(void *library)
{
    if (library != NULL) dlclose(library);
}
