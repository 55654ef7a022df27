#include "output/progress.h"

#include "clock.h"
#include "output/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS 100000000

enum { BAR = 30, NAME_MOST = 40, NAME_LEAST = 8, COLUMNS = 80 /* where the terminal does not say */ };

void progress_begin(progress *p, const char *what, const char *name)
{
    const char *folder_end = strrchr(name, '/');
    *p = (progress){ isatty(STDERR_FILENO) == 1, what, folder_end ? folder_end + 1 : name, 0 };
    progress_update(p, 0, 0);
}

static int columns(void)
{
    struct winsize size = { 0 };
    const bool said = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return said ? size.ws_col : COLUMNS;
}

/* What follows the name at most. */
static int tail_of(int bar, uint64_t total)
{
    if (total == 0) return 20; /* the digits of 2^64 */
    return (bar ? bar + 3 : 0) + 4;
}

static void draw(int bar, uint64_t done, uint64_t total)
{
    if (total == 0) {
        if (done) fprintf(stderr, "%" PRIu64, done);
        return;
    }
    const double share = done < total ? (double)done / (double)total : 1;
    const int full = (int)(share * bar);
    if (bar) fprintf(stderr, "[%.*s%*s] ", full, "##############################", bar - full, "");
    fprintf(stderr, "%3d%%", (int)(share * 100));
}

void progress_update(progress *p, uint64_t done, uint64_t total)
{
    if (!p->shown) return;
    uint64_t now = clock_now_ns();
    if (now < p->next_ns) return;
    p->next_ns = now + REDRAW_NS;

    const int room = columns() - 1 - (int)strlen(p->what) - 2; /* a full line would wrap */
    const int bar = room >= NAME_LEAST + tail_of(BAR, total) ? BAR : 0, left = room - tail_of(bar, total);
    char name[NAME_MOST + 1];
    if (left < 1) return;
    text_plain(p->name, name, left < NAME_MOST ? (size_t)left + 1 : sizeof name);
    fprintf(stderr, "\r%s %s ", p->what, name);
    draw(bar, done, total);
    fputs("\033[K", stderr);
    fflush(stderr);
}

void progress_on(void *p, uint64_t done, uint64_t total)
{
    progress_update(p, done, total);
}

void progress_end(progress *p)
{
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}
