/* advise.h: between the files of `belay advise`. */
#ifndef BELAY_ADVISE_H
#define BELAY_ADVISE_H

#include "cli.h"
#include "policy/policy.h"

/* What a file of --failures holds (advise_failures.c). */
struct failures {
        uint64_t local, remote; /* seen during … */
        double seconds;
};
/* FINE, or TROUBLE after a complaint. */
enum status failures_load(const char *path, struct failures *out);

/* A time between failures, in seconds, and where it may lie. */
struct mtbf {
        double likely, least, most;
        bool counted; /* from a history */
};
struct advice {
        struct multilevel choice; /* for a compute time of 1 s */
        struct mtbf local, remote;
        struct failures history;
        double range_costs; /* most points of efficiency lost if the times are at an end of it */
};

/* The command (advise_interval.c). */
enum status advise_interval(const struct args *a);
/* Its answer (advise_words.c). */
void advice_print(const struct advice *v);
void advice_json(const struct advice *v);

/* The choice if all failures come as often, or as seldom, as they may. */
enum advice_end { END_OFTEN, END_SELDOM, ENDS };
struct what_if {
        struct multilevel best;
        double efficiency; /* of the best choice then  */
        double advised;    /* … and of the advised one */
};
struct what_if advice_if(const struct advice *v, enum advice_end end);

#endif
