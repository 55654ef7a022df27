#include "replay/peers/peer.h"

#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const peer *const peers[] = {
    &peer_torch_expandable,
    &peer_async,
    &peer_cub,
    &peer_rmm_pool,
    &peer_rmm_arena,
    &peer_bfc,
    &peer_tlsf,
    &peer_cupy,
    &peer_ggml,
    &peer_gmlake,
};

size_t peer_count(void)
{
    return sizeof peers / sizeof *peers;
}

const peer *peer_at(size_t index)
{
    return peers[index];
}

const peer *peer_find(const char *text)
{
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < peer_count(); i++)
        if (strncmp(peers[i]->name, text, length) == 0 && peers[i]->name[length] == '\0') return peers[i];
    return NULL;
}

static void name_options(const peer *p, char *error, size_t room)
{
    size_t used = (size_t)snprintf(error, room, "%s", p->options[0].name ? "" : "none");
    for (size_t i = 0; i < PEER_OPTIONS && p->options[i].name && used < room; i++)
        used += (size_t)snprintf(error + used, room - used, "%s%s", i ? ", " : "", p->options[i].name);
}

static bool read_value(const peer_option *o, const char *text, uint64_t *value)
{
    if (!o->bytes) return cli_count(text, o->least, o->most, value);
    return cli_size(text, value) && *value >= o->least && *value <= o->most;
}

static const peer_option *find_option(const peer *p, const char *text, size_t length)
{
    for (const peer_option *o = p->options; o < p->options + PEER_OPTIONS && o->name; o++)
        if (strncmp(o->name, text, length) == 0 && o->name[length] == '\0') return o;
    return NULL;
}

/* Reads one "option=value". */
static bool choose_option(const char *text, peer_choice *out, char *error, size_t room)
{
    const peer *p = out->peer;
    const size_t length = strcspn(text, "=");
    const peer_option *o = find_option(p, text, length);
    if (!o || text[length] != '=') {
        char known[160];
        name_options(p, known, sizeof known);
        snprintf(error, room, "policy '%s' has no option '%.*s'; write %s:OPTION=VALUE,... with one of: %s", p->name,
                 (int)length, text, p->name, known);
        return false;
    }
    out->given[o - p->options] = true;
    if (read_value(o, text + length + 1, &out->values[o - p->options])) return true;
    snprintf(error, room, "policy '%s': %s '%s' is not a %s from %" PRIu64 " to %" PRIu64 "%s", p->name, o->name,
             text + length + 1, o->bytes ? "size" : "number", o->least, o->most, o->bytes ? " bytes" : "");
    return false;
}

static bool check_order(const peer_choice *c, char *error, size_t room)
{
    const peer *p = c->peer;
    for (size_t i = 0; i < PEER_OPTIONS && p->options[i].name; i++) {
        const char *name = p->options[i].at_most;
        const peer_option *above = name ? find_option(p, name, strlen(name)) : NULL;
        if (!above || c->values[i] <= c->values[above - p->options]) continue;
        snprintf(error, room, "policy '%s': %s is %" PRIu64 ", more than %s, which is %" PRIu64, p->name,
                 p->options[i].name, c->values[i], name, c->values[above - p->options]);
        return false;
    }
    return true;
}

bool peer_choose(const char *text, peer_choice *out, char *error, size_t room)
{
    *out = (peer_choice){ .peer = peer_find(text) };
    if (!out->peer) {
        snprintf(error, room, "there is no policy '%s'", text);
        return false;
    }
    for (size_t i = 0; i < PEER_OPTIONS; i++) out->values[i] = out->peer->options[i].standard;

    const char *rest = strchr(text, ':');
    while (rest) {
        char word[128];
        const char *begin = rest + 1;
        rest = strchr(begin, ',');
        const size_t length = rest ? (size_t)(rest - begin) : strlen(begin);
        snprintf(word, sizeof word, "%.*s", (int)length, begin);
        if (!choose_option(word, out, error, room)) return false;
    }
    return check_order(out, error, room);
}
