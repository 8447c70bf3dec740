/* crash_verify.c: the judge. */
#include "crash_verify.h"
#include "check.h"

/* ---- one version --------------------------------------------------------------------------- */

enum verdict judge_found(struct judge *j, enum verdict verdict, const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        vsnprintf(j->why, sizeof(j->why), fmt, args);
        va_end(args);
        return verdict;
}

enum verdict judge_version(struct judge *j, struct belay *b, uint64_t version, bool newest)
{
        const struct snapshot *state = j->states[version];
        arena_attach(&j->arena, b, state);
        int rc = newest ? belay_restart(b) : belay_restart_version(b, version, 0);
        if (rc != 1)
                return judge_found(j, LOST, "version %llu: restart gives %d: %s",
                                   (unsigned long long)version, rc,
                                   rc < 0 ? belay_error() : "nothing to restore");
        if (belay_version(b) != version)
                return judge_found(j, LOST, "version %llu is listed, %llu was restored",
                                   (unsigned long long)version,
                                   (unsigned long long)belay_version(b));
        const char *name = arena_differs(&j->arena, state);
        if (name)
                return judge_found(j, BLENDED, "version %llu: region '%s' has other content",
                                   (unsigned long long)version, name);
        return EXACT;
}

/* ---- what lives on must work ----------------------------------------------------------------- */

static enum verdict judge_going_on(struct judge *j, const struct setup *setup, struct belay **b,
                                   uint64_t at)
{
        struct snapshot *state = NULL;
        enum verdict verdict = EXACT;
        for (unsigned i = 0; i < 3 && verdict == EXACT; i++) {
                arena_scribble(&j->arena, j->seed + at + i);
                int rc = belay_checkpoint(*b);
                if (rc)
                        verdict = judge_found(j, LOST, "checkpoint after restart gives %d: %s", rc,
                                              belay_error());
        }
        uint64_t version = belay_version(*b);
        if (verdict == EXACT && version < at + 3)
                verdict = judge_found(j, LOST, "version %llu comes after %llu",
                                      (unsigned long long)version, (unsigned long long)at);
        if (verdict == EXACT)
                state = arena_snapshot(&j->arena);
        CHECK_EQ(belay_close(b), 0);
        if (verdict != EXACT)
                return verdict;
        int rc = setup_open(setup, j->path, b);
        if (rc) {
                verdict = judge_found(j, LOST, "second open gives %d: %s", rc, belay_error());
        } else {
                arena_attach(&j->arena, *b, state);
                rc = belay_restart(*b);
                if (rc != 1 || belay_version(*b) != version || arena_differs(&j->arena, state))
                        verdict = judge_found(j, BLENDED,
                                              "second restart gives %d, version %llu: %s", rc,
                                              (unsigned long long)belay_version(*b), belay_error());
        }
        snapshot_delete(state);
        return verdict;
}

/* ---- the pool ------------------------------------------------------------------------------ */

static enum verdict judge_open(struct judge *j, const struct setup *setup, struct belay **b,
                               uint64_t last, uint64_t next, bool go_on)
{
        struct belay_stats st = {.size = sizeof(st)};
        CHECK_EQ(belay_stats(*b, &st), 0);
        uint64_t v = st.version;
        enum verdict verdict = EXACT;
        if (v != last && v != next) {
                /* It is too old; whether it can at least be restored tells which kind of mistake
                 * was made. */
                verdict = v ? judge_version(j, *b, v, true) : EXACT;
                if (verdict != EXACT)
                        return verdict;
                return judge_found(j, v < last ? OLDER : LOST,
                                   "version %llu; %llu had returned, %llu was being written",
                                   (unsigned long long)v, (unsigned long long)last,
                                   (unsigned long long)next);
        }
        if (v == 0) {
                int rc = belay_restart(*b);
                if (rc)
                        return judge_found(j, LOST, "restart of an empty pool gives %d", rc);
                if (go_on)
                        arena_attach(&j->arena, *b, j->states[1]);
        }
        for (uint64_t older = v > j->keep ? v - j->keep + 1 : 1; older < v && verdict == EXACT;
             older++) {
                verdict = judge_version(j, *b, older, false);
                if (verdict == EXACT)
                        arena_detach(&j->arena, *b);
        }
        if (v && verdict == EXACT)
                verdict = judge_version(j, *b, v, true);
        return verdict == EXACT && go_on ? judge_going_on(j, setup, b, v) : verdict;
}

/* A warning means that the library found damage. A crash damages nothing, except that it may tear
 * the superblock that was being written: then nothing that was published is called lost. */
static void on_warning(void *arg, enum belay_log_level level, const char *text)
{
        struct judge *j = arg;
        (void)level;
        if (strstr(text, "is lost, if it was published") || strstr(text, "no version is lost"))
                return;
        if (j->warning[0] == '\0')
                snprintf(j->warning, sizeof(j->warning), "%s", text);
}

enum verdict judge_pool(struct judge *j, uint64_t last, uint64_t next, bool own_media, bool go_on)
{
        struct setup setup = {.media = j->setup->media, .io = "pwrite", .direct = "off"};
        setup.copy = j->setup->copy;
        if (own_media)
                setup = *j->setup;
        setup.versions = j->setup->versions;
        setup.limit = NULL; /* a pool that had a limit may grow now */
        struct belay *b = NULL;
        j->warning[0] = '\0';
        belay_log_sink(on_warning, j, BELAY_LOG_WARN);
        int rc = setup_open(&setup, j->path, &b);
        enum verdict verdict = rc ? judge_found(j, LOST, "open gives %d: %s", rc, belay_error())
                                  : judge_open(j, &setup, &b, last, next, go_on);
        CHECK_EQ(belay_close(&b), 0);
        belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
        if (verdict == EXACT && j->warning[0])
                verdict = judge_found(j, LOST, "warning: %s", j->warning);
        return verdict;
}
