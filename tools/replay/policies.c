#include "replay/policies.h"

#include "cli.h"
#include "grow.h"
#include "output/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SERVED "plan"
#define LEARNED "learn"

static const struct {
    const char *name, *about;
} library[] = {
    { "torch",
      "PyTorch's native rules, run by the library; reproduces recorded peaks to the byte, except for captured graphs" },
    { "weir", "this library's own rules" },
    { "segments",
      "its rules without chunks, as on devices without virtual memory and in private pools with rules about segments" },
    { SERVED,
      "policy weir, serving a plan: one made of the trace, or of a part of it in percent (from=0,to=50,time=1), or "
      "FILE" },
    { LEARNED,
      "policy weir, planning by itself what the passes repeat, with plan_share=1; compare WARM RATIO from the third "
      "pass on" },
};
enum { LIBRARY = sizeof library / sizeof *library, NAMES_MOST = 32 };

/* Names of all policies, the library's first. */
static size_t all_names(const char *names[NAMES_MOST])
{
    size_t count = 0;
    while (count < LIBRARY) {
        names[count] = library[count].name;
        count++;
    }
    for (size_t i = 0; i < peer_count(); i++) names[count++] = peer_at(i)->name;
    return count;
}

/* The library's policy of that name, up to a colon; NULL when there is none. */
static const char *find_library(const char *text)
{
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < LIBRARY; i++)
        if (strncmp(text, library[i].name, length) == 0 && library[i].name[length] == '\0') return library[i].name;
    return NULL;
}

static bool say_unknown(const char *text)
{
    const char *names[NAMES_MOST];
    const size_t count = all_names(names);
    const char *nearest = cli_nearest(text, names, count);
    if (nearest)
        cli_usage("replay", "there is no policy '%s'; did you mean '%s'?", text, nearest);
    else
        cli_usage("replay", "there is no policy '%s'; '--policy help' lists them", text);
    return false;
}

static bool add(policies *to, const char *text)
{
    policy_choice made = { 0 };
    char error[400];
    for (size_t i = 0; i < to->count; i++)
        if (strcmp(to->at[i].text, text) == 0) return true;
    const char *own = find_library(text);
    made.learned = own && strcmp(own, LEARNED) == 0;
    if (own && strcmp(own, SERVED) == 0) {
        made.planned = true;
        const char *rest = strchr(text, ':');
        if (!served_choose(rest ? rest + 1 : "", &made.plan, error, sizeof error)) {
            cli_usage("replay", "%s", error);
            return false;
        }
    } else if (own && strcmp(text, own) != 0) {
        cli_usage("replay", "policy '%s' has no options here; set WEIR_* variables instead", own);
        return false;
    }
    if (!own) {
        if (!peer_find(text)) return say_unknown(text);
        if (!peer_choose(text, &made.model, error, sizeof error)) {
            cli_usage("replay", "%s", error);
            return false;
        }
    }
    const size_t room = strlen(text) + 1;
    made.text = grow_new(room, 1);
    memcpy(made.text, text, room);
    to->at = grow_array(to->at, to->count + 1, &to->capacity, sizeof *to->at);
    to->at[to->count++] = made;
    return true;
}

static bool add_all(policies *to)
{
    const char *names[NAMES_MOST];
    const size_t count = all_names(names);
    bool good = true;
    for (size_t i = 0; i < count; i++) good &= add(to, names[i]);
    return good;
}

/* The length of the policy at `text`: up to a comma that no option of its own follows. */
static size_t policy_length(const char *text)
{
    size_t length = strcspn(text, ",");
    while (text[length] == ',') {
        const char *next = text + length + 1;
        const size_t word = strcspn(next, ",");
        const size_t colon = strcspn(next, ":"), equals = strcspn(next, "=");
        if (equals >= word || colon < equals) break;
        length += 1 + word;
    }
    return length;
}

bool policies_add(policies *to, const char *list)
{
    bool good = true;
    while (good) {
        const size_t length = policy_length(list);
        char *text = grow_new(length + 1, 1);
        memcpy(text, list, length);
        good = strcmp(text, "all") == 0 ? add_all(to) : add(to, text);
        free(text);
        if (list[length] == '\0') break;
        list += length + 1;
    }
    return good;
}

void policies_release(policies *p)
{
    for (size_t i = 0; i < p->count; i++) free(p->at[i].text);
    free(p->at);
    *p = (policies){ 0 };
}

void policies_print(FILE *out)
{
    for (size_t i = 0; i < LIBRARY; i++) fprintf(out, "%-18s %s\n", library[i].name, library[i].about);
    for (size_t i = 0; i < peer_count(); i++) {
        const peer *p = peer_at(i);
        fprintf(out, "%-18s %s\n", p->name, p->about);
        for (const peer_option *o = p->options; o < p->options + PEER_OPTIONS && o->name; o++) {
            char size[TABLE_SIZE];
            snprintf(size, sizeof size, "%" PRIu64, o->standard);
            if (o->bytes && o->standard < PEER_UNLIMITED) table_size(o->standard, size);
            fprintf(out, "    %-14s %s; default %s\n", o->name, o->about,
                    o->standard == PEER_UNLIMITED ? "unlimited" : size);
        }
    }
}
