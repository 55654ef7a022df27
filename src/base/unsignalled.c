#include "base/unsignalled.h"

#include <errno.h>
#include <time.h>

static void take_away(int number)
{
    static const struct timespec at_once;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR) continue;
}

void wr_unsignalled_begin(wr_unsignalled *u)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigpending(&u->waiting);
    pthread_sigmask(SIG_BLOCK, &ours, &u->before);
}

void wr_unsignalled_end(const wr_unsignalled *u, int error)
{
    const int saved = errno;
    const int sent = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (sent && !sigismember(&u->waiting, sent)) take_away(sent);
    pthread_sigmask(SIG_SETMASK, &u->before, NULL);
    errno = saved;
}
