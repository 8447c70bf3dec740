/* policy: when to checkpoint, and how. Pure decisions from times that the caller measured: no
 * clock, no I/O. */
#ifndef BELAY_POLICY_H
#define BELAY_POLICY_H

#include "base/base.h"

/* Why a checkpoint is asked for, the most urgent first. */
enum trigger {
        TRIGGER_NONE,
        TRIGGER_REQUEST,  /* from outside: `belay checkpoint`       */
        TRIGGER_SIGNAL,   /* the option `signal`                    */
        TRIGGER_WALL,     /* the last one before the limit          */
        TRIGGER_INTERVAL, /* so much time has passed                */
        TRIGGER_OVERHEAD  /* the cap allows another one             */
};
/* A word, "" for TRIGGER_NONE. */
const char *trigger_text(enum trigger t);

struct interval_options {
        uint64_t interval_ns;    /* 0: none                              */
        uint64_t wall_ns;        /* after start_ns, 0: none              */
        uint64_t wall_margin_ns; /* before wall_ns, at least             */
        uint64_t overhead;       /* in 1e-9 of a percent, 0: none        */
};
struct interval {
        struct interval_options options;
        uint64_t start_ns;  /* from which wall_ns counts               */
        uint64_t since_ns;  /* the last checkpoint began, or the open  */
        uint64_t cost_ns;   /* the last one blocked the program        */
        uint64_t commit_ns; /* … and was published after               */
        bool known;         /* cost_ns was measured                    */
        bool wall_done;     /* the last one before the limit was taken */
        bool requested, signalled;
};
/* All times are of one monotonic clock. */
void interval_init(struct interval *i, const struct interval_options *o, uint64_t start_ns,
                   uint64_t now_ns);
/* Whether to checkpoint now, and why. Stays so until interval_began. */
enum trigger interval_due(const struct interval *i, uint64_t now_ns);
/* A checkpoint begins, for whatever reason: it serves all that were pending. */
void interval_began(struct interval *i, uint64_t now_ns);
/* It returned to the program; it counts whether it succeeded or not. */
void interval_ended(struct interval *i, uint64_t blocked_ns);
/* It was published: how long that took, and how long the program waited for it after its return. */
void interval_published(struct interval *i, uint64_t commit_ns, uint64_t wait_ns);
/* The state is as fresh as after a checkpoint (restart). */
void interval_fresh(struct interval *i, uint64_t now_ns);
/* The least time from one checkpoint to the next that keeps the cap; 0 without a cap. */
uint64_t interval_least(const struct interval *i);

/* ---- differencing ------------------------------------------------------------------------------
 */

/* Time per byte, or per block: the equations do not care as long as all are alike. */
struct diff_costs {
        double hash;       /* t_h: of memory, to compare it                       */
        double copy;       /* to where it is written from, having been hashed     */
        double first_copy; /* … not having been hashed: not in a cache            */
        double rehash;     /* of the copy                                         */
        double submit;     /* handing it to the medium                            */
        double write;      /* t_w, by the medium                                  */
        double fixed;      /* per commit: barriers, manifest, superblock          */
        bool overlaps;     /* the medium writes while the next blocks are hashed */
        bool known;
};
/* Equations 1 to 5 of the dCP paper, for N_t blocks of which N_d changed, or for the share n_d:
 * what is saved, what it costs, τ (less than 0: it pays), the share η up to which it pays, and S,
 * the time relative to a full checkpoint. */
double diff_saving(double blocks, double changed, const struct diff_costs *c);
double diff_overhead(double blocks, double changed, const struct diff_costs *c);
double diff_cost(double share, const struct diff_costs *c);
double diff_threshold(const struct diff_costs *c);
double diff_relative(double share, const struct diff_costs *c);

/* What is known or expected of a region in a commit, in bytes. */
struct diff_region {
        double total, touched, changed;
        bool compared; /* with an earlier version; else all that was touched is written */
        bool hashed;   /* what is written has a hash                                    */
};
/* What a commit has to do, in bytes. */
struct diff_work {
        double total;          /* of all regions                   */
        double compared_total; /* of those that are compared       */
        double compared, copied, first_copied, rehashed, written;
};
void diff_add(struct diff_work *w, const struct diff_region *r);
struct diff_work diff_without(double total, bool checksums);
double diff_time(const struct diff_work *w, const struct diff_costs *c);

/* What a commit is expected to take, and what without comparing, by MODEL_BELAY (diff_time) or
 * MODEL_FTI (equations 1 and 2: everything is hashed, what changed twice; the rest is writing).
 * Both are 0 as long as too little was measured. `checksums`: without comparing, too, everything is
 * hashed. */
struct diff_times {
        double time, full;
};
struct diff_times diff_expect(uint64_t model, const struct diff_work *w, bool checksums,
                              const struct diff_costs *c);

/* What a commit took. */
struct diff_sample {
        struct {
                double ns, bytes;
        } hash, copy, first_copy, rehash; /* of some blocks                             */
        double flush_ns;                  /* first block to last                        */
        double submit_ns;                 /* of that, handing over                      */
        double wait_ns;                   /* … and waiting for the medium               */
        double written;
        double fixed_ns;
};
#define DIFF_LEAST_BYTES (1 << 20) /* less tells nothing about the medium */
void diff_learn(struct diff_costs *c, const struct diff_sample *s);

/* Whether the blocks of a region are compared. */
struct diff_choice {
        bool on;
        bool trial;       /* on for one comparison                           */
        uint32_t against; /* versions in a row in which it did not pay       */
        uint32_t left;    /* versions until the next trial                   */
        uint32_t pause;   /* … after the next that does not pay              */
        double share;     /* of the region that changed, last time           */
        double same;      /* of what was looked at, that had not             */
        double zeros;     /* share of the region, by what was seen of it so far: nothing is
                             hashed, copied or written of them, compared or not  */
};
void diff_begin(struct diff_choice *d);
/* For the next version. */
bool diff_next(struct diff_choice *d);
/* Something says that it would pay now: the next version is a trial. */
void diff_try(struct diff_choice *d);
/* So many of its bytes were put, `zeros` of them zeros. */
void diff_saw_zeros(struct diff_choice *d, double total, double put, double zeros);
/* The version is published. Did comparing the region pay, by this model? Nothing is learned where
 * there was nothing to compare with. */
void diff_outcome(struct diff_choice *d, uint64_t model, const struct diff_region *r,
                  bool checksums, const struct diff_costs *c);

/* ---- pre-copy ----------------------------------------------------------------------------------
 */

/* Tp = I - D / bandwidth: so long after the last checkpoint copying must begin to be through with
 * `bytes` at the next one. */
uint64_t precopy_threshold(uint64_t interval_ns, double bytes, double ns_per_byte);

/* What is known about the modifications of one chunk. Times are since the last checkpoint. */
struct forecast {
        bool known;              /* an interval has been observed              */
        uint32_t seen, expected; /* modifications in this interval             */
        uint64_t last_ns;        /* when the last one was seen …               */
        uint64_t expected_ns;    /* … and is expected                          */
        uint32_t before;         /* as seen in the interval before             */
        uint64_t before_ns;
        uint32_t held; /* intervals without an observation */
};
/* What is seen within apart_ns of the one before is the same one. */
void forecast_modified(struct forecast *f, uint64_t at_ns, uint64_t apart_ns);
/* Is the last modification the next to be seen, or over? */
bool forecast_near(const struct forecast *f);
/* Has the last modification that is expected been seen? */
bool forecast_over(const struct forecast *f, uint64_t now_ns, uint64_t slack_ns);
/* The next interval begins; `observed`: a modification in this one would have been seen. */
void forecast_next(struct forecast *f, bool observed);

/* ---- two levels of checkpoints -----------------------------------------------------------------
 * multilevel.c, optimum.c and failures.c need libm. They serve the command and the tests; the
 * library is built without them. */

/* A segment: `every` times computing for `interval` and a local checkpoint, then a remote one. All
 * times in one unit. An MTBF may be INFINITY: there are no such failures. */
struct multilevel {
        double compute;        /* T_compute: what the whole run computes                 */
        double interval;       /* I: computing between two local checkpoints             */
        double every;          /* K: local checkpoints per remote one, a whole number    */
        double local_cost;     /* t_lcl: the program stands still                        */
        double remote_cost;    /* o_rmt: what a remote one delays, not how long it takes */
        double restart_local;  /* R_lcl                                                  */
        double restart_remote; /* R_rmt                                                  */
        double mtbf_local;     /* of failures that leave the local checkpoint usable     */
        double mtbf_remote;    /* … and of those that do not                             */
};
/* What is wrong with the inputs, or NULL. The functions below give NAN for wrong ones. */
const char *multilevel_wrong(const struct multilevel *m);

/* The expected time of the run; INFINITY if it is beyond all numbers. */
double multilevel_total(const struct multilevel *m);
/* compute / total */
double multilevel_efficiency(const struct multilevel *m);
/* From one remote checkpoint to the next, without failures. */
double multilevel_segment(const struct multilevel *m);
/* What the time goes to. The shares add up to 1; all are 0 if the total is not finite. */
enum part {
        PART_COMPUTE,
        PART_LOCAL,
        PART_REMOTE,
        PART_RESTART_LOCAL,
        PART_RESTART_REMOTE,
        PART_AGAIN_LOCAL, /* work done again after local failures */
        PART_AGAIN_REMOTE,
        PARTS
};
void multilevel_parts(const struct multilevel *m, double share[PARTS]);

/* Equation 1 of the NVM-checkpoints paper and its terms: T_lcl, O_rmt, T_lclrstart + T_lclrecomp,
 * T_rmtrstart + T_rmtrecomp for a given T_total, and T_total itself. */
double eq1_local(const struct multilevel *m);
double eq1_remote(const struct multilevel *m);
double eq1_lost_local(const struct multilevel *m);
double eq1_lost_remote(const struct multilevel *m, double total);
double eq1_total(const struct multilevel *m);

/* One level: the computing between two checkpoints that is best if each costs so much. */
double young_interval(double cost, double mtbf);
double daly_interval(double cost, double mtbf);

/* Sets interval and every to what makes `total` least. False if the inputs are wrong, if there are
 * no failures at all, or if the run would not end even so. */
bool multilevel_best(struct multilevel *m, double (*total)(const struct multilevel *m));
/* Sets them by a formula for one level, applied to each level alone. */
void multilevel_alone(struct multilevel *m, double (*formula)(double cost, double mtbf));
#define MULTILEVEL_MOST_EVERY 1048576.0

/* The 90 % range of the expected number of failures, if `seen` were seen. */
void failures_range(uint64_t seen, double *low, double *high);
/* The expected number itself: for 0, the number by which one would have been seen half the time. */
double failures_expected(uint64_t seen);

#endif
