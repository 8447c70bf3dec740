/* superblocks.c: what a reader without a lock can know from the superblocks, beside a live writer.
 *
 * Guarantees
 *  1. What was read of a version before pool_lists finds it listed is its content, also where
 *     blocks have no checksum: slots of a listed version are not written. A version that left the
 *     list comes back only if its slots were kept (draft.c: a superblock write that failed).
 *  2. A superblock that a writer is just writing is not taken for a damaged one, unless the writer
 *     is held up for longer than a reader waits. */
#include "store/store_int.h"

#define MARK "BLYSUPER"

bool pool_recognize(int fd)
{
        for (uint64_t i = 0; i < 2; i++) {
                char mark[sizeof(MARK) - 1];
                int64_t n = plat_read_full(fd, mark, sizeof(mark), i * SUPER_BYTES);
                if (n == sizeof(mark) && memcmp(mark, MARK, sizeof(mark)) == 0)
                        return true;
        }
        return false;
}

/* Reads them so that the result was current when this was called, or later.
 *
 * They are read in the order 0, 1 and written in turn. If 1 is valid, the newer of the two is
 * current when 1 is read, or newer still. If 1 is not valid, it may just be being written: then 0
 * may have been read before the writer replaced it, and what that one listed may be overwritten by
 * now. But while 1 is being written 0 is complete, so 0 is read again. */
static int read_fresh(struct pool *p, struct superblock *out, uint32_t *at)
{
        int rc = superblocks_read(p, out, at);
        if (rc == 0 && p->options.readonly && p->super_state[1][0] != '\0')
                rc = superblocks_read(p, out, at);
        return rc;
}

/* How long a reader waits for a superblock that looks damaged. A process that has the pool locked
 * may be writing it, and may have lost its processor in the midst of that. */
#define WAIT_MS      2u
#define WAIT_LIVE_MS 512u

/* Waits while the superblocks do not look as they should: `both` must be valid, or one suffices. */
static int read_patiently(struct pool *p, bool both, struct superblock *out, uint32_t *at)
{
        uint64_t most = p->options.readonly ? WAIT_MS : 0;
        for (uint64_t pause = 1;; pause *= 2) {
                int rc = read_fresh(p, out, at);
                bool whole = !p->super_state[0][0] && !p->super_state[1][0];
                /* Of a pool that holds no version yet, superblock 1 has never been written. */
                bool enough = rc ? rc != BELAY_E_DATA : !both || whole || out->generation == 1;
                if (pause == 1 && most && !enough && plat->lock_owner(p->media->fd) > 0)
                        most = WAIT_LIVE_MS;
                if (enough || pause > most)
                        return rc;
                plat->sleep_ns(pause * UINT64_C(1000000));
        }
}

int superblocks_read_both(struct pool *p, struct superblock *out, uint32_t *at)
{
        return read_patiently(p, true, out, at);
}

/* The current one, while everything known about the pool stays as it is. */
static int read_current(struct pool *p, struct superblock *out)
{
        char state[2][sizeof(p->super_state[0])];
        struct lost_list other = p->other;
        uint32_t at;
        memcpy(state, p->super_state, sizeof(state));
        int rc = read_patiently(p, false, out, &at);
        memcpy(p->super_state, state, sizeof(state));
        p->other = other;
        return rc;
}

bool superblocks_changed(struct pool *p)
{
        struct superblock now;
        struct err_kept kept;
        err_keep(&kept);
        bool changed = read_current(p, &now) == 0 && now.generation != p->super.generation;
        (void)err_give_back(&kept);
        return changed;
}

int pool_lists(struct pool *p, const struct version *v)
{
        struct superblock now;
        if (!p->options.readonly)
                return pool_find_version(p, v->number) == v;
        int rc = read_current(p, &now);
        if (rc)
                return rc;
        for (uint32_t i = 0; i < now.version_count; i++) {
                const struct version_entry *e = &now.versions[i];
                if (e->version == v->number && e->manifest.offset == v->manifest.offset &&
                    hash_equal(e->manifest.checksum, v->manifest.checksum))
                        return 1;
        }
        return 0;
}
