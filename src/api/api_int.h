/* api_int.h: the two public handles. */
#ifndef BELAY_API_INT_H
#define BELAY_API_INT_H

#include "api/api.h"
#include "engine/engine.h"
#include "restore/restore.h"

struct belay_config {
        struct options options;
};

struct belay {
        struct options options;
        struct budget budget;
        struct probe probes[PROBE_COUNT];
        struct pool *pool;
        struct regions regions;
        struct engine *engine;
        struct match match;
        bool matched; /* match describes a restart of this context */
        uint64_t version;
        uint64_t restarts;
};

#endif
