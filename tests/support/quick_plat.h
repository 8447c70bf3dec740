/* quick_plat.h: a call table for tests that open thousands of pools. Large buffers come from fresh
 * pages instead of being cleared, and barriers do nothing; everything else is the real one. */
#ifndef TESTS_QUICK_PLAT_H
#define TESTS_QUICK_PLAT_H

#include "plat/plat.h"

const struct plat_calls *quick_plat(void);
/* Whether it takes mapped files for persistent memory, from now on. */
void quick_pmem(bool on);

#endif
