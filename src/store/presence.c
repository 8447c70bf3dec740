/* presence.c: a pool is a file, and other programs can delete, rename, replace or cut it off while
 * it is in use.
 *
 * Deleted, renamed, replaced: what is published then goes into a file that no restart will find. So
 * each version asks before it is published whether the open file is the one under its name. Between
 * that and the superblock the file may still go; the next version says so. When a version is begun
 * it is only asked whether the file has a name at all, which costs less; but all of it if a version
 * has found it missing, so that the program learns of it from the call, and if old versions would
 * be given up (replace).
 * The name is looked up in the directory that was open when the pool was: a program may change its
 * working directory, and a directory that is renamed takes its pool along.
 *
 * Cut off: a version that was being written then fails. Before the next one is begun, the file gets
 * its length back, and versions that may have reached behind its end are marked damaged, in the
 * superblock too, so that nothing is shared with them. Regions that still show pages of the pool
 * would be given zeros by that: then the context is broken instead.
 *
 * Not noticed: a file that is cut off while a version is written to it as a file, if a later write
 * of the same version makes it as long as before. A restart finds that damaged. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

/* 0 also where nobody can tell (no access to the directory any more): the file is still there to be
 * written to. *bytes is its length as far as is known. */
static int find(struct pool *p, bool named, uint64_t *bytes)
{
        *bytes = UINT64_MAX;
        int where = plat->where(p->media->fd, p->place.dir, named ? p->place.name : NULL, bytes);
        p->missing = where == PLAT_NOTHING || where == PLAT_ANOTHER;
        if (where == PLAT_DELETED)
                return err_set(BELAY_E_BROKEN,
                               "pool '%s' was deleted while in use, and its versions with it; "
                               "close the context and open it again, that makes a new pool",
                               p->label);
        if (p->missing)
                return err_set(-ESTALE,
                               "pool '%s' was renamed while in use, %s under its name now: rename "
                               "it back, or close the context and open it again",
                               p->label,
                               where == PLAT_NOTHING ? "and nothing is" : "and another file is");
        return 0;
}

/* Blocks of zeros have no place, and no offset. */
static void reach(uint64_t *end, uint64_t offset, uint64_t bytes)
{
        if (offset)
                *end = max_u64(*end, offset + bytes);
}

static void leaf_reach(uint64_t *end, const struct leaf *l)
{
        reach(end, l->ref.offset, leaf_length(l->count));
        for (uint32_t i = 0; i < l->count; i++)
                reach(end, l->entries[i].offset, leaf_block_bytes(l, i));
}

/* Where the objects of a version end. */
static uint64_t version_end(const struct version *v)
{
        uint64_t end = v->manifest.offset + v->manifest_bytes;
        for (uint32_t i = 0; i < v->catalog_count; i++) {
                struct catalog_ref c = version_catalog(v, i);
                reach(&end, c.ref.offset, c.bytes);
        }
        for (uint32_t i = 0; i < v->region_count; i++)
                for (uint64_t j = 0; j < region_leaves(&v->regions[i]->desc); j++)
                        leaf_reach(&end, v->regions[i]->leaves[j]);
        return end;
}

/* The file has only so many bytes left, and what lay behind `sure` may be lost. */
static int mend(struct pool *p, uint64_t bytes, uint64_t sure)
{
        struct media *m = p->media;
        uint64_t whole = m->bytes;
        char text[80];
        if (p->holds)
                return err_set(BELAY_E_BROKEN,
                               "pool '%s' was cut off by another program to %llu bytes, while "
                               "regions show its pages (option restart = lazy): what they have "
                               "not been written since is lost; restart from a pool that is whole",
                               p->label, (unsigned long long)sure);
        snprintf(text, sizeof(text), "the file was cut off to %llu bytes or less while in use",
                 (unsigned long long)sure);
        log_emit(BELAY_LOG_WARN, "pool '%s' had %llu bytes: %s", p->label,
                 (unsigned long long)whole, text);
        for (uint32_t i = 0; i < p->version_count; i++) {
                if (version_usable(p->versions[i]) && version_end(p->versions[i]) > sure)
                        pool_mark_damaged(p, p->versions[i], text);
                p->super.versions[i].flags = p->versions[i]->flags;
        }
        p->doubtful = true; /* what is cut off is zeros from now on: the list says so first */
        m->bytes = min_u64(bytes, whole);
        int rc = whole > plat->file_limit() ? -EFBIG : m->ops->grow(m, whole);
        m->bytes = whole; /* if that failed, it is tried again before the next version */
        if (rc)
                return err_set(rc, "pool '%s' was cut off and cannot get its %llu bytes back: %s",
                               p->label, (unsigned long long)whole, media_text(rc));
        m->least = UINT64_MAX;
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
        struct media *m = p->media;
        uint64_t bytes;
        int rc = find(p, p->options.replace || p->missing, &bytes);
        uint64_t sure = min_u64(bytes, m->least);
        /* A version that was given up may have been written beyond the cut, and a file grows by
         * that; a mapping does not. */
        if (sure < m->bytes && p->writing && !pool_is_mapped(p))
                sure = 0;
        if (rc == 0 && sure < m->bytes)
                rc = mend(p, bytes, sure);
        if (rc == 0 && m->ops->ready) {
                rc = m->ops->ready(m);
                if (rc)
                        rc = err_set(rc, "pool '%s' cannot be written: %s", p->label,
                                     code_text(rc));
        }
        p->writing = true;
        return rc ? rc : complete_last_slot(p);
}

int pool_unharmed(struct pool *p)
{
        uint64_t bytes;
        int rc = find(p, true, &bytes);
        if (rc == 0 && bytes < p->media->bytes)
                return err_set(BELAY_E_DATA,
                               "pool '%s' was cut off by another program to %llu bytes or less "
                               "while the version was written",
                               p->label, (unsigned long long)bytes);
        p->writing = rc != 0;
        return rc;
}
