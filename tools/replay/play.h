/*
 * play: plays the operations of a script in a session.
 * Owner: none; the session is the caller's.
 */
#ifndef WEIR_TOOLS_REPLAY_PLAY_H
#define WEIR_TOOLS_REPLAY_PLAY_H

#include "replay/run.h"

/* False: the session's error[] says why it stopped. */
bool play_ops(session *s, const script_ops *ops);

/* The script's body, with the clock of the host back end where the program's was. */
bool play_body(session *s);
bool play_moves_clock(const session *s);

/* The allocation that failed when recorded and is made to fail again where this RELIEVE is played; NULL: none. */
const script_op *play_failing(const session *s, const script_op *relief);

/* Of run.c. Returns false, with the session's error[] set: `what`, and the library's error or the status's text. */
bool session_refuse(session *s, const char *what, weir_status status);

#endif
