#include "output/progress.h"

#include "clock.h"
#include "output/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR 30
#define REDRAW_NS 100000000

void progress_begin(progress *p, const char *what, const char *name)
{
    const char *folder_end = strrchr(name, '/');
    *p = (progress){ isatty(STDERR_FILENO) == 1, what, folder_end ? folder_end + 1 : name, 0 };
    progress_update(p, 0, 0);
}

void progress_update(progress *p, uint64_t done, uint64_t total)
{
    if (!p->shown) return;
    uint64_t now = clock_now_ns();
    if (now < p->next_ns) return;
    p->next_ns = now + REDRAW_NS;

    char name[41];
    fprintf(stderr, "\r%s %s ", p->what, text_plain(p->name, name, sizeof name));
    if (total == 0) {
        if (done) fprintf(stderr, "%" PRIu64, done);
    } else {
        double share = done < total ? (double)done / (double)total : 1;
        int full = (int)(share * BAR);
        fprintf(stderr, "[%.*s%*s] %3d%%", full, "##############################", BAR - full, "", (int)(share * 100));
    }
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
