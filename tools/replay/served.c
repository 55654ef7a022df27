#include "replay/served.h"

#include "cli.h"
#include "plan/file.h"
#include "script/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_MOST = 3600 };

/* Reads one "name=number" of the list; `length` is its length. */
static bool take_option(const char *text, size_t length, served_choice *out, char *error, size_t error_size)
{
    const struct {
        const char *name;
        uint64_t most, *to;
    } options[] = { { "from=", 100, &out->from }, { "to=", 100, &out->to }, { "time=", SECONDS_MOST, &out->time } };
    char value[32];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const size_t name = strlen(options[i].name);
        if (strncmp(text, options[i].name, name) != 0 || length - name >= sizeof value) continue;
        memcpy(value, text + name, length - name);
        value[length - name] = '\0';
        if (cli_count(value, 0, options[i].most, options[i].to)) return true;
        snprintf(error, error_size, "policy 'plan': '%.*s' is not a number up to %" PRIu64, (int)length, text,
                 options[i].most);
        return false;
    }
    snprintf(
        error, error_size,
        "policy 'plan' has no option '%.*s'; it has from, to (percent of the trace) and time, and a file with = in "
        "its name needs a /, such as ./",
        (int)length, text);
    return false;
}

bool served_choose(const char *text, served_choice *out, char *error, size_t error_size)
{
    *out = (served_choice){ .to = 100, .time = 1 };
    if (*text && (!strchr(text, '=') || strchr(text, '/'))) {
        if (strlen(text) < sizeof out->file) {
            snprintf(out->file, sizeof out->file, "%s", text);
            return true;
        }
        snprintf(error, error_size, "policy 'plan': the file's name is longer than %zu bytes", sizeof out->file - 1);
        return false;
    }
    while (*text) {
        const size_t length = strcspn(text, ",");
        if (!take_option(text, length, out, error, error_size)) return false;
        text += length + (text[length] == ',');
    }
    if (out->from < out->to) return true;
    snprintf(error, error_size, "policy 'plan': nothing lies between %" PRIu64 " and %" PRIu64 " percent", out->from,
             out->to);
    return false;
}

static bool make_of(const script *s, const served_choice *choice, served *out, char *error, size_t error_size)
{
    const solve_options options = { .seed = 1, .threads = 1, .seconds = (double)choice->time };
    problem p;
    if (!problem_build(s, true, &p, error, error_size)) return false;
    make_plan(&p, &options, true, &out->made);
    problem_release(&p);
    out->plan = out->made.plan;
    return true;
}

static bool make_of_part(const script *s, const served_choice *choice, served *out, char *error, size_t error_size)
{
    if (choice->from == 0 && choice->to == 100) return make_of(s, choice, out, error, error_size);
    script stretch;
    script_part(s, s->body.count * choice->from / 100, s->body.count * choice->to / 100, &stretch);
    const bool good = make_of(&stretch, choice, out, error, error_size);
    script_part_release(&stretch);
    return good;
}

bool served_make(const script *s, const served_choice *choice, served *out, char *error, size_t error_size)
{
    *out = (served){ 0 };
    error[0] = '\0';
    if (!choice->file[0]) return make_of_part(s, choice, out, error, error_size);
    if (!plan_read("replay", choice->file, &out->read)) return false;
    out->plan = *out->read;
    return true;
}

void served_release(served *s)
{
    made_plan_release(&s->made);
    weir_plan_destroy(s->read);
    *s = (served){ 0 };
}
