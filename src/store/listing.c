/* listing.c: the list of versions in the superblock: a version joins it, others leave it.
 *
 * A list is written over the superblock that is not current, and becomes the truth with the barrier
 * after it. draft.c has the invariants; 2, 3 and 4 are kept here. */
#include "store/store_int.h"

static int write_superblock(struct pool *p, const struct superblock *s)
{
        superblock_encode(s, p->scratch);
        uint32_t at = 1 - p->super_at;
        plat_point("pool.superblock");
        int rc = media_write_now(p->media, p->scratch, SUPER_BYTES, (uint64_t)at * SUPER_BYTES);
        plat_point("pool.barrier_superblock");
        return rc ? rc : p->media->ops->barrier(p->media);
}

/* After a superblock write of unknown fate: makes the current list certain again, then lets go of
 * the version that may or may not have been listed. Likewise over a superblock that was found
 * damaged: then both of them know that its number is used up. */
int pool_settle(struct pool *p)
{
        if (!p->limbo && !p->other.damaged && !p->doubtful)
                return 0;
        struct superblock s = p->super;
        s.generation++;
        int rc = write_superblock(p, &s);
        if (rc)
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               media_text(rc));
        p->super = s;
        p->super_at = 1 - p->super_at;
        p->super_state[p->super_at][0] = '\0';
        memset(&p->other, 0, sizeof(p->other));
        p->doubtful = false;
        version_delete(p, p->limbo);
        p->limbo = NULL;
        return 0;
}

/* What stays listed: every damaged version that is to be kept, and so many of the newest undamaged
 * ones, in ascending order. */
static uint32_t choose_kept(const struct pool *p, uint64_t most, struct version *keep[MAX_VERSIONS])
{
        uint32_t good = 0;
        uint32_t n = 0;
        struct version *down[MAX_VERSIONS];
        for (uint32_t i = p->version_count; i > 0 && n < MAX_VERSIONS - 1; i--) {
                struct version *v = p->versions[i - 1];
                bool stays = version_usable(v) ? good < most : p->options.damaged == DAMAGED_KEEP;
                if (stays)
                        down[n++] = v;
                good += version_usable(v);
        }
        for (uint32_t i = 0; i < n; i++)
                keep[i] = down[n - 1 - i];
        return n;
}

static struct version_entry entry_of(const struct version *v)
{
        return (struct version_entry){v->number, v->manifest, v->manifest_bytes, v->flags,
                                      v->time_ns};
}

/* Puts them into a superblock. */
static void list_kept(const struct pool *p, struct version *keep[MAX_VERSIONS], uint32_t kept,
                      struct superblock *s)
{
        s->version_count = kept;
        s->held_bytes = 0;
        for (uint32_t i = 0; i < kept; i++) {
                const struct version *v = keep[i];
                s->versions[i] = entry_of(v);
                if (!v->unreadable)
                        continue;
                /* Its entry stays legal, also when the file was cut off before its manifest. */
                s->pool_bytes =
                        max_u64(s->pool_bytes,
                                align_up(v->manifest.offset + v->manifest_bytes, SLOT_BYTES));
                s->held_bytes = p->held_bytes;
        }
}

/* Frees what left the list. From here on the new list is the truth. */
static void adopt(struct pool *p, const struct superblock *s, struct version *keep[MAX_VERSIONS],
                  uint32_t kept)
{
        struct version *gone[MAX_VERSIONS];
        uint32_t gone_count = 0;
        for (uint32_t i = 0; i < p->version_count; i++) {
                bool stays = false;
                for (uint32_t k = 0; k < kept; k++)
                        stays |= keep[k] == p->versions[i];
                if (!stays)
                        gone[gone_count++] = p->versions[i];
        }
        memcpy(p->versions, keep, kept * sizeof(*keep));
        p->version_count = kept;
        p->super = *s;
        p->super_at = 1 - p->super_at;
        p->super_state[p->super_at][0] = '\0';
        for (uint32_t i = 0; i < gone_count; i++)
                version_delete(p, gone[i]);
}

/* Old versions make room for the next. From here to its publication the pool has none that can be
 * restored, and says so: an empty list, or one of damaged versions, but numbers in use. */
int listing_give_up(struct pool *p)
{
        struct version *keep[MAX_VERSIONS];
        uint32_t kept = choose_kept(p, 0, keep);
        struct superblock s = p->super;
        if (kept == p->version_count)
                return 0;
        s.generation++;
        list_kept(p, keep, kept, &s);
        int rc = write_superblock(p, &s);
        if (rc) {
                /* Which list the medium holds is unknown; the old versions are untouched. A
                 * generation that may be on the medium is not used again. */
                p->doubtful = true;
                p->super.generation = s.generation;
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               media_text(rc));
        }
        p->given_up = p->versions[p->version_count - 1]->number;
        adopt(p, &s, keep, kept);
        return 0;
}

int listing_add(struct draft *d)
{
        struct pool *p = d->p;
        struct version *keep[MAX_VERSIONS];
        uint32_t kept = choose_kept(p, p->options.versions - 1, keep);
        d->v->time_ns = plat->wall_ns();
        struct superblock s = p->super;
        s.generation++;
        s.next_version = d->v->number + 1;
        s.pool_bytes = p->media->bytes;
        keep[kept++] = d->v;
        list_kept(p, keep, kept, &s);
        int rc = write_superblock(p, &s);
        if (rc) {
                /* Old or new list: nobody knows which one the medium holds. Keep both alive
                 * (invariant 4); a number and a generation that may be on the medium are not used
                 * again. */
                p->limbo = d->v;
                d->v = NULL;
                p->super.next_version = s.next_version;
                p->super.generation = s.generation;
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               media_text(rc));
        }
        adopt(p, &s, keep, kept);
        d->v = NULL;
        return 0;
}
