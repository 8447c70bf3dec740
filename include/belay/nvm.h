/* nvm.h: memory that survives, by name: the calls of the NVM-checkpoints paper (Kannan et al.,
 * 2013).
 *
 * A variable is allocated in memory under an id, and has a copy in the pool if it is persistent.
 * nvchkptall brings the copies of all persistent variables up to date, together; nvchkptid that of
 * one. After a crash the program allocates the same variables again, and finds in them what was
 * checkpointed last.
 *
 *      double *x = nvalloc(genid("x"), n * sizeof(*x), 1);
 *      for (; step < steps; step++) {
 *              compute(x);
 *              nvchkptall();
 *      }
 *
 * The pool and everything else is as the options say (belay.conf(5): the file belay.conf, BELAY_POOL
 * and other variables of the environment); it is opened by the first call. One thread at a time.
 * Pointers are NULL and results negative on failure; belay_error() has the text. From Fortran:
 * module belay_nvm, or any bind(c) interface.
 *
 * These calls are in a library of their own, libbelay-nvm, since their names have no prefix: link
 * with -lbelay-nvm -lbelay (pkg-config belay-nvm, CMake belay::belay-nvm). belay(3), under MEMORY BY
 * NAME, has the overview.
 *
 * Damage. A version that is damaged is passed over with a warning, and all variables come from the
 * newest one that is intact. If there were versions and none is intact, that is not taken for a
 * first start: what needs the stored variables fails with BELAY_E_DATA, and so do nvchkptall and
 * nvchkptid, so that nothing takes the place of what might still be saved (`belay export`). To
 * begin anew all the same, set the option `damaged` to drop (BELAY_DAMAGED=drop), or take another
 * pool. */
#ifndef BELAY_NVM_H
#define BELAY_NVM_H

#include <belay/belay.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The id of a variable: the same in every run. The name is what the pool lists it under. 0 on
 * failure. */
uint64_t genid(const char *varname);
/* Memory for a variable of `size` bytes, zero. `persistent`: it is checkpointed, and its last
 * checkpoint is in it, if there is one; one of another size is BELAY_E_MISMATCH (nvsize tells which
 * it has). Otherwise it is memory like any other: never in a checkpoint, zero after every start. A
 * copy that an earlier run left in the pool stays there until nvdelete. */
void *nvalloc(uint64_t id, size_t size, int persistent);
/* A matrix of doubles in Fortran's order, persistent; its id is its place among the calls. */
void *nv2dalloc(uint64_t dim1, uint64_t dim2);
/* The same under an id, of elements of any size. */
void *nv2dalloc_id(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element, int persistent);
/* Memory that the program has already becomes a persistent variable. As with nvalloc, its last
 * checkpoint is in it afterwards, if there is one (nvsize tells); nvdelete before that keeps what
 * the program has there. It is borrowed until nvdelete, nvrealloc or nvclose. On BELAY_E_DATA its
 * content is undefined if the option `restart` is lazy, else it is untouched. */
int nvattach(uint64_t id, void *src, size_t size);
/* Another size: the content stays, what is new is zero. `src` is the variable's memory; it may
 * move. For attached memory `src` is where it is now. */
void *nvrealloc(uint64_t id, void *src, size_t size);
/* Bytes of the variable in the checkpoint that nvalloc would take. 0 on failure: belay_error_code()
 * is -ENOENT if it has none, BELAY_E_DATA if no version is intact. */
size_t nvsize(uint64_t id);
/* The variable is gone, and with the next checkpoint its copy in the pool. Also for one that the
 * program has not allocated, of which there is only the copy. -ENOENT if there is neither. */
int nvdelete(uint64_t id);
/* All persistent variables. Those that have not been allocated again stay in the pool as they were;
 * with the option `replace`, which gives the version before up first, this is refused until they
 * have been allocated or deleted (-EOPNOTSUPP). Returns as the option `policy` says. */
int nvchkptall(void);
/* Of this variable alone: the others stay in the pool as they were. Not with the option `replace`.
 * -EINVAL if it is not persistent. */
int nvchkptid(uint64_t id);
/* Waits for the last checkpoint and closes the pool; all variables are gone. Also done at exit. */
int nvclose(void);
/* The context behind these calls, to be used with belay.h; NULL on failure. */
struct belay *nvcontext(void);

#ifdef __cplusplus
}
#endif

#endif
