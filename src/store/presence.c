/* presence.c: a pool is a file, and other programs can delete, rename or replace it while it is in
 * use.
 *
 * What is published then goes into a file that no restart will find. So each version asks twice
 * whether the open file is the one under its name: before it is begun, so that the program learns
 * of it from the call and no old version is given up for it, and before it is published. Between
 * that and the superblock the file may still go; the next version says so.
 *
 * The name is looked up in the directory that was open when the pool was: a program may change its
 * working directory, and a directory that is renamed takes its pool along. */
#include "store/store_int.h"
#include <errno.h>

/* 0 also where nobody can tell (no access to the directory any more): the file is still there to be
 * written to. *bytes is its length as far as is known. */
static int find(const struct pool *p, uint64_t *bytes)
{
        *bytes = UINT64_MAX;
        int where = plat->where(p->media->fd, p->place.dir, p->place.name, bytes);
        if (where == PLAT_DELETED)
                return err_set(BELAY_E_BROKEN,
                               "pool '%s' was deleted while in use, and its versions with it; "
                               "close the context and open it again, that makes a new pool",
                               p->label);
        if (where == PLAT_NOTHING || where == PLAT_ANOTHER)
                return err_set(-ESTALE,
                               "pool '%s' was renamed while in use, %s under its name now: rename "
                               "it back, or close the context and open it again",
                               p->label,
                               where == PLAT_NOTHING ? "and nothing is" : "and another file is");
        return 0;
}

/* A file may end within a slot: cut off, or left so by a crash during growth. What lies in that
 * slot counts, and pool bytes are whole slots, so the slot is completed before a superblock speaks
 * of it. */
static int complete_last_slot(struct pool *p)
{
        uint64_t bytes = align_up(p->media->bytes, SLOT_BYTES);
        if (bytes == p->media->bytes)
                return 0;
        int rc = bytes > plat->file_limit() ? -EFBIG : p->media->ops->grow(p->media, bytes);
        return rc ? err_set(rc, "pool '%s' cannot be filled up to %llu bytes: %s", p->label,
                            (unsigned long long)bytes, code_text(rc))
                  : 0;
}

int pool_present(struct pool *p)
{
        uint64_t bytes;
        int rc = find(p, &bytes);
        return rc ? rc : complete_last_slot(p);
}

int pool_unharmed(const struct pool *p)
{
        uint64_t bytes;
        return find(p, &bytes);
}
