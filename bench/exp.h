/* exp.h: the experiments, one file each. */
#ifndef BELAY_EXP_H
#define BELAY_EXP_H

#include "bench.h"

int exp_raw(struct bench *b);

#endif
