#include "world.h"

const char *const world_trackers[3] = {"tracker=scan", "tracker=uffd", "tracker=mprotect"};
static const char *const buffers[] = {"copy_buffer=0", "copy_buffer=256KiB"};
bool world_in_time = true;

void world_begin(struct world *w, int tracker, int buffer)
{
        char options[256];
        snprintf(w->path, sizeof(w->path), "%s", stress_pool("pool"));
        snprintf(options, sizeof(options), WORLD_SLOW "%s %s", world_trackers[tracker],
                 buffers[buffer]);
        w->b = stress_open(w->path, options);
        w->memory = belay_alloc(w->b, "x", BELAY_U8, WORLD_BYTES);
        CHECK(w->memory != NULL);
        stress_fill(w->memory, WORLD_BYTES, 1);
        w->frozen = stress_copy(w->memory, WORLD_BYTES);
        CHECK_EQ(belay_checkpoint(w->b), 0);
}

void world_write_from(const struct world *w, uint64_t from)
{
        for (uint64_t at = WORLD_BYTES; at > from; at -= 4096)
                stress_poke(w->memory, at - 1, (uint8_t)(at >> 12));
}

void world_write_all(const struct world *w)
{
        world_write_from(w, 0);
}

void world_end(struct world *w)
{
        stress_exact(w->b, w->path, "x", w->frozen, WORLD_BYTES);
        CHECK_EQ(belay_checkpoint(w->b), 0);
        stress_exact(w->b, w->path, "x", w->memory, WORLD_BYTES);
        stress_close(&w->b);
        free(w->frozen);
}

void world_for_all(void (*during)(const struct world *w))
{
        for (int t = 0; t < 3; t++)
                for (int k = 0; k < 2; k++) {
                        struct world w = {.b = NULL};
                        world_begin(&w, t, k);
                        during(&w);
                        if (world_in_time)
                                CHECK_EQ(stress_state(w.b), BELAY_FLUSHING);
                        world_end(&w);
                }
}
