/* cli_progress.c: a bar for long reads. Nothing is drawn for short ones, and nothing stays on the
 * screen. */
#include "cli.h"
#include <unistd.h>

#define PATIENCE_NS 500000000u /* before the bar appears   */
#define REDRAW_NS   100000000u /* between two drawings     */
#define BAR_WIDTH   30u

void progress_begin(struct progress *p, const char *label, uint64_t total_bytes)
{
        *p = (struct progress){.label = label,
                               .total = total_bytes,
                               .start_ns = plat->now_ns(),
                               .terminal = isatty(STDERR_FILENO) == 1};
}

static void draw(struct progress *p, uint64_t elapsed_ns)
{
        double part = p->total ? (double)p->done / (double)p->total : 1;
        if (part > 1)
                part = 1;
        unsigned full = (unsigned)(part * BAR_WIDTH);
        char bar[BAR_WIDTH + 1];
        for (unsigned i = 0; i < BAR_WIDTH; i++)
                bar[i] = i < full ? '#' : '.';
        bar[BAR_WIDTH] = '\0';
        uint64_t rate = (uint64_t)((double)p->done * 1e9 / (double)elapsed_ns);
        fprintf(stderr, "\r%s [%s] %3.0f %%  %s of %s, %s/s \033[K", p->label, bar, 100 * part,
                size_text(p->done).s, size_text(p->total).s, size_text(rate).s);
        fflush(stderr);
        p->shown = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
        p->done += bytes;
        if (!p->terminal)
                return;
        uint64_t now = plat->now_ns();
        if (now - p->start_ns > PATIENCE_NS && now - p->shown_ns > REDRAW_NS) {
                p->shown_ns = now;
                draw(p, now - p->start_ns);
        }
}

void progress_end(struct progress *p)
{
        if (p->shown) {
                fputs("\r\033[K", stderr);
                fflush(stderr);
        }
        p->shown = false;
}
