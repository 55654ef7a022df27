/*
 * policies: the values of --policy: the library's own rules, or a peer's with its options.
 * Owner: the command, until policies_release.
 */
#ifndef WEIR_TOOLS_REPLAY_POLICIES_H
#define WEIR_TOOLS_REPLAY_POLICIES_H

#include "replay/peers/peer.h"
#include "replay/served.h"

#include <stdio.h>

typedef struct policy_choice {
    char *text;        /* as asked */
    peer_choice model; /* its peer is NULL for a policy of the library */
    bool planned;      /* the library's own rules, serving a plan */
    served_choice plan;
    bool learned; /* the library's own rules, planning by itself */
} policy_choice;

typedef struct policies {
    policy_choice *at; /* each text once, in the order asked */
    size_t count, capacity;
} policies;

/* Adds a list: "torch,rmm-pool:initial=1GiB,maximum=20GiB,cub", or "all". False after reporting what is wrong. */
bool policies_add(policies *to, const char *list);
void policies_release(policies *p);

/* Lists every policy with a description and its options. */
void policies_print(FILE *out);

#endif
