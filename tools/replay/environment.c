#include "replay/environment.h"

#include "grow.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep(environment *e, const char *name, const char *value)
{
    const size_t room = strlen(name) + strlen(value) + 2;
    char *text = grow_new(room, 1);
    snprintf(text, room, "%s=%s", name, value);
    e->hidden = grow_array(e->hidden, e->count + 1, &e->capacity, sizeof *e->hidden);
    e->hidden[e->count++] = text;
}

void environment_hide(environment *e, const char *name)
{
    const char *value = getenv(name);
    if (!value) return;
    keep(e, name, value);
    unsetenv(name);
}

/* Where libraries are found is no option, and the same for all. */
static bool is_option(const char *variable)
{
    static const char *const others[] = { "WEIR_LOG=", "WEIR_LIB_" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(variable, others[i], strlen(others[i])) == 0) return false;
    return strncmp(variable, "WEIR_", 5) == 0 && strchr(variable, '=');
}

/* The first that is left; NULL: none. */
static const char *next_option(void)
{
    for (char **at = environ; at && *at; at++)
        if (is_option(*at)) return *at;
    return NULL;
}

void environment_hide_options(environment *e)
{
    const char *option;
    while ((option = next_option()) != NULL) {
        char *name = grow_new(strlen(option) + 1, 1);
        memcpy(name, option, strcspn(option, "="));
        environment_hide(e, name);
        free(name);
    }
}

void environment_restore(environment *e)
{
    for (size_t i = 0; i < e->count; i++) {
        char *value = strchr(e->hidden[i], '=');
        *value = '\0';
        if (setenv(e->hidden[i], value + 1, 1) != 0) grow_stop(strlen(value + 1), 1);
        free(e->hidden[i]);
    }
    free(e->hidden);
    *e = (environment){ 0 };
}
