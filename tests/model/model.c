/* model.c: chooses and runs the operations. */
#include "model.h"

void model_fail(const struct model *m, const char *file, int line, const char *fmt, ...)
{
        char text[1024];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        check_failed(file, line, "step %llu: %s (last error: %s)", (unsigned long long)m->step,
                     text, belay_error());
}

void model_result(const struct model *m, int rc, int expected, const char *what)
{
        if (rc != expected)
                MODEL_FAIL(m, "%s gives %d, expected %d", what, rc, expected);
}

void model_begin(struct model *m, const char *path, uint64_t seed)
{
        *m = (struct model){.random = {seed}, .next_version = 1};
        snprintf(m->path, sizeof(m->path), "%s", path);
        for (unsigned i = 0; i < MODEL_REGIONS; i++)
                snprintf(m->regions[i].name, sizeof(m->regions[i].name),
                         i % 4 == 3 ? "größe %u" : "region %u", i);
        model_open(m);
}

void model_step(struct model *m)
{
        struct model_region *r = &m->regions[model_below(m, MODEL_REGIONS)];
        uint64_t what = model_below(m, 100);
        m->step++;
        if (what < 50) {
                if (!r->registered) {
                        model_shape(m, r);
                        model_register(m, r);
                } else if (what < 4)
                        model_forget(m, r);
                else if (what < 14)
                        model_reshape(m, r);
                else
                        model_write(m, r);
        } else if (what < 75) {
                model_checkpoint(m);
        } else if (what < 90) {
                model_restart(m);
        } else if (what < 94) {
                model_misuse(m);
        } else if (what < 97) {
                model_reopen(m);
        } else {
                model_compare(m);
        }
        if (m->step % 16 == 0)
                model_check_pool(m);
}

void model_end(struct model *m)
{
        model_compare(m);
        model_check_pool(m);
        model_result(m, belay_close(&m->b), 0, "close");
        for (unsigned i = 0; i < MODEL_REGIONS; i++)
                model_free_memory(&m->regions[i]);
        for (uint32_t i = 0; i < m->version_count; i++)
                model_drop_version(&m->versions[i]);
        unlink(m->path);
}
