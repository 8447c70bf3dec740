#include "stress.h"
#include "api/api_int.h"
#include "engine/engine_int.h"
#include "read_once.h"
#include <errno.h>
#include <sys/wait.h>

struct belay *stress_open(const char *path, const char *options)
{
        struct belay_config *c;
        struct belay *b;
        char text[512];
        char *rest;
        snprintf(text, sizeof(text), "%s", options);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest)) {
                char *value = strchr(p, '=');
                CHECK(value != NULL);
                *value = '\0';
                if (belay_config_set(c, p, value + 1))
                        check_failed(__FILE__, __LINE__, "%s", belay_error());
        }
        if (belay_open(c, &b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        belay_config_delete(&c);
        return b;
}

const char *stress_pool(const char *name)
{
        static char path[4096];
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        unlink(path);
        return path;
}

void stress_compare(const char *path, uint64_t version, const char *name, const void *expected,
                    uint64_t bytes)
{
        struct budget budget = {.limit = 256 << 20};
        /* Not with io_uring: ThreadSanitizer does not see that the kernel maps its rings where a
         * thread had memory before. */
        struct pool_options o = {
                .path = path, .readonly = true, .io = IO_PWRITE, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_find_version(p, version);
        CHECK(v != NULL);
        int64_t at = version_find(v, name);
        CHECK(at >= 0);
        uint8_t *back = malloc(bytes + 1);
        CHECK_EQ(read_once(p, v, (uint32_t)at, back, NULL, NULL), 0);
        CHECK_MEM(back, expected, bytes);
        free(back);
        CHECK_EQ(pool_close(&p), 0);
}

struct engine *stress_engine(struct belay *b)
{
        return b->engine;
}

/* A handler that takes a pocket and finds the unit captured gives it back: it may be just doing so.
 */
void stress_check_idle(struct belay *b)
{
        struct guard *g = &b->engine->tracker.guard;
        engine_idle(b->engine);
        while (!pockets_complete(g)) {
                bool inside = atomic_load(&g->inside) != 0;
                if (!inside && !pockets_complete(g))
                        check_failed(__FILE__, __LINE__, "%u of %u pockets are in use or lost",
                                     atomic_load(&g->pockets_used), g->pocket_count);
                usleep(100);
        }
        CHECK_EQ(atomic_load(&g->copied), 0);
        engine_resume(b->engine);
}

void stress_close(struct belay **b)
{
        stress_check_idle(*b);
        CHECK_EQ(belay_close(b), 0);
}

void stress_exact(struct belay *b, const char *path, const char *name, const void *expected,
                  uint64_t bytes)
{
        if (belay_wait(b, 0, BELAY_FOREVER))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        stress_check_idle(b);
        stress_compare(path, belay_version(b), name, expected, bytes);
}

STRESS_PROGRAM void stress_fill(void *p, uint64_t bytes, uint64_t seed)
{
        uint8_t *at = p;
        uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
        for (uint64_t i = 0; i < bytes; i++) {
                s = s * 6364136223846793005u + 1442695040888963407u;
                at[i] = (uint8_t)(s >> 56);
        }
}

void *stress_copy(const void *p, uint64_t bytes)
{
        void *copy = malloc(bytes + 1);
        CHECK(copy != NULL);
        memcpy(copy, p, bytes);
        return copy;
}

int stress_state(struct belay *b)
{
        struct belay_status s = {.size = sizeof(s)};
        CHECK_EQ(belay_status(b, 0, &s), 0);
        return (int)s.state;
}

int stress_reap(int pid)
{
        int status;
        while (waitpid(pid, &status, 0) < 0)
                CHECK_EQ(errno, EINTR);
        return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}
