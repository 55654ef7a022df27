/*
 * handover: memory of weir's for other processes of the same user. The process that has it names it by a text; whoever
 * has the text asks that process, over a socket, for the descriptors of the memory. Each who asks gets copies, and this
 * process keeps only those that weir_export() keeps. No right to look into the other process is needed, as it is to
 * take a descriptor out of it (pidfd_getfd).
 * Owner of the socket: the process that made the first text, with a thread of its own that answers. Lock: one for
 * starting and ending, which the thread does not take.
 */
#ifndef WEIR_ADAPTERS_HANDOVER_H
#define WEIR_ADAPTERS_HANDOVER_H

#include <stdbool.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WA_HANDOVER_TEXT 96 /* bytes, with the terminating zero */

/* Names what is at an address in a live block; good as long as the block lives. The same address has the same text.
 * `*first`: nobody had answered until now, since the process began or since weir_handover_end(). If why->text stays as
 * it was, the thread's last error explains the status returned. */
weir_status wa_hand_over(const void *address, char text[WA_HANDOVER_TEXT], bool *first, weir_error *why);

/* Imports what a text stands for, in any process. `*address`: where it is here; `*base`: for weir_import_close(). `why`
 * as above. */
weir_status wa_take_over(const char *text, int device, void **address, void **base, weir_error *why);

/* Nobody gets an answer any more, until the next text is made. To be called before weir_close(); does nothing in a
 * forked child. */
WEIR_API void weir_handover_end(void);

#ifdef __cplusplus
}
#endif
#endif
