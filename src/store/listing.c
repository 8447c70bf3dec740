/* listing.c: the list of versions in the superblock: a version joins it, others leave it.
 *
 * A list is written over the superblock that is not current, and becomes the truth with the barrier
 * after it. draft.c has the invariants; 2, 3 and 4 are kept here. */
#include "store/store_int.h"
#include <errno.h>

static int write_superblock(struct pool *p, struct superblock *s)
{
        /* One that was confirmed too early would make the superblock invalid (format.md §3). */
        s->confirmed = min_u64(s->confirmed, s->next_version - 1);
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

/* What becomes of the list. Those that leave it are seized, so that no reader can pin them any more,
 * until the list is written. */
struct next_list {
        struct version *keep[MAX_VERSIONS]; /* ascending */
        uint32_t kept;
        const struct version *leave[MAX_VERSIONS];
        uint32_t left;
};

/* The newest version that all members of the job have, by what they told each other. */
static const struct version *newest_confirmed(const struct pool *p)
{
        for (uint32_t i = p->version_count; i > 0; i--)
                if (p->versions[i - 1]->number <= p->super.confirmed &&
                    version_usable(p->versions[i - 1]))
                        return p->versions[i - 1];
        return NULL;
}

bool listing_wants(const struct pool *p, uint32_t i, uint64_t most)
{
        uint64_t newer = 0;
        for (uint32_t k = i + 1; k < p->version_count; k++)
                newer += version_usable(p->versions[k]);
        const struct version *v = p->versions[i];
        return version_usable(v) ? newer < most || v == newest_confirmed(p)
                                 : p->options.damaged == DAMAGED_KEEP;
}

static void let_go(struct pool *p, const struct next_list *n)
{
        for (uint32_t i = 0; i < n->left; i++)
                pin_let_go(p, n->leave[i]);
}

/* What stays: every damaged version that is to be kept, so many of the newest undamaged ones, the
 * newest confirmed one, and what a reader has pinned. */
static int choose(struct pool *p, uint64_t most, struct next_list *n)
{
        struct version *down[MAX_VERSIONS];
        n->kept = n->left = 0;
        for (uint32_t i = p->version_count; i > 0; i--) {
                struct version *v = p->versions[i - 1];
                /* Damaged ones give way when the list is full: nobody can read them. */
                bool wanted = listing_wants(p, i - 1, most) &&
                              (version_usable(v) || n->kept < MAX_VERSIONS - 1);
                if (!wanted && pin_seize(p, v))
                        n->leave[n->left++] = v;
                else
                        down[n->kept++] = v;
        }
        for (uint32_t i = 0; i < n->kept; i++)
                n->keep[i] = down[n->kept - 1 - i];
        if (n->kept < MAX_VERSIONS)
                return 0;
        char blame[96];
        let_go(p, n);
        return err_set(-EBUSY, "pool '%s' cannot list more than %u versions%s", p->label,
                       MAX_VERSIONS, pin_blame(p, most, blame, sizeof(blame)));
}

static struct version_entry entry_of(const struct version *v)
{
        return (struct version_entry){v->number, v->manifest, v->manifest_bytes, v->flags,
                                      v->time_ns};
}

/* Puts them into a superblock. */
static void list_kept(const struct pool *p, const struct next_list *n, struct superblock *s)
{
        s->version_count = n->kept;
        s->held_bytes = 0;
        for (uint32_t i = 0; i < n->kept; i++) {
                const struct version *v = n->keep[i];
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
static void adopt(struct pool *p, const struct superblock *s, const struct next_list *n)
{
        let_go(p, n);
        memcpy(p->versions, n->keep, n->kept * sizeof(*n->keep));
        p->version_count = n->kept;
        p->super = *s;
        p->super_at = 1 - p->super_at;
        p->super_state[p->super_at][0] = '\0';
        for (uint32_t i = 0; i < n->left; i++)
                version_delete(p, (struct version *)(uintptr_t)n->leave[i]);
}

static uint32_t usable_count(const struct pool *p)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < p->version_count; i++)
                count += version_usable(p->versions[i]);
        return count;
}

/* With the option replace the pool has, from here to the next publication, no version that can be
 * restored, and says so: an empty list, or one of damaged versions, but numbers in use. */
int listing_make_room(struct pool *p)
{
        struct next_list n;
        struct superblock s = p->super;
        uint64_t most = p->options.replace ? 0 : p->options.versions;
        if (p->version_count == 0 || (!p->options.replace && usable_count(p) <= most))
                return 0;
        int rc = choose(p, most, &n);
        if (rc || n.left == 0)
                return rc;
        s.generation++;
        list_kept(p, &n, &s);
        rc = write_superblock(p, &s);
        if (rc) {
                let_go(p, &n);
                /* Which list the medium holds is unknown; the old versions are untouched. A
                 * generation that may be on the medium is not used again. */
                p->doubtful = true;
                p->super.generation = s.generation;
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               media_text(rc));
        }
        p->given_up = p->versions[p->version_count - 1]->number;
        adopt(p, &s, &n);
        return 0;
}

int listing_add(struct draft *d)
{
        struct pool *p = d->p;
        struct next_list n;
        int rc = choose(p, p->options.versions - 1, &n);
        if (rc)
                return rc;
        d->v->time_ns = plat->wall_ns();
        struct superblock s = p->super;
        s.generation++;
        s.next_version = max_u64(s.next_version, d->v->number + 1);
        s.pool_bytes = p->media->bytes;
        n.keep[n.kept++] = d->v;
        list_kept(p, &n, &s);
        rc = write_superblock(p, &s);
        if (rc) {
                let_go(p, &n);
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
        adopt(p, &s, &n);
        d->v = NULL;
        return 0;
}
