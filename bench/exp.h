/* exp.h: the experiments, one file each. */
#ifndef BELAY_EXP_H
#define BELAY_EXP_H

#include "bench.h"

int exp_raw(struct bench *b);
int exp_freeze(struct bench *b);
int freeze_many(struct bench *b); /* its part with many arrays */
int exp_access_order(struct bench *b);
int exp_epochs(struct bench *b);
int exp_cow_size(struct bench *b);
int exp_overhead(struct bench *b);
int exp_diff_ratio(struct bench *b);
int exp_diff_block(struct bench *b);
int exp_diff_apps(struct bench *b);
int exp_collisions(struct bench *b);
int exp_dynamic(struct bench *b);
int exp_ramdisk(struct bench *b);
int exp_precopy(struct bench *b);
int exp_lazy(struct bench *b);
int exp_small_change(struct bench *b);
int exp_regions(struct bench *b);
int exp_copy_level(struct bench *b);
int exp_warm_up(struct bench *b);
int exp_phases(struct bench *b);

#endif
