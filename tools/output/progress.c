#include "output/progress.h"

#include "clock.h"
#include "output/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS 100000000

enum { BAR = 30, TAIL = 64, NAME_MOST = 40, NAME_LEAST = 8, COLUMNS = 80 /* where the terminal does not say */ };

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

static void write_share(char to[TAIL], int bar, uint64_t done, uint64_t total)
{
    if (total == 0) {
        snprintf(to, TAIL, "%.0" PRIu64, done); /* nothing for 0 */
        return;
    }
    const double share = done < total ? (double)done / (double)total : 1;
    const int full = (int)(share * bar), percent = (int)(share * 100);
    if (bar)
        snprintf(to, TAIL, "[%.*s%*s] %3d%%", full, "##############################", bar - full, "", percent);
    else
        snprintf(to, TAIL, "%3d%%", percent);
}

void progress_update(progress *p, uint64_t done, uint64_t total)
{
    if (!p->shown) return;
    uint64_t now = clock_now_ns();
    if (now < p->next_ns) return;
    p->next_ns = now + REDRAW_NS;

    const int room = columns() - 1 - (int)strlen(p->what) - 2; /* a full line would wrap */
    char share[TAIL], name[NAME_MOST + 1];
    write_share(share, BAR, done, total);
    if (room < NAME_LEAST + (int)strlen(share)) write_share(share, 0, done, total);
    const int left = room - (int)strlen(share);
    if (left < 1) return;
    text_plain(p->name, name, left < NAME_MOST ? (size_t)left + 1 : sizeof name);
    fprintf(stderr, "\r%s %s %s", p->what, name, share);
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
