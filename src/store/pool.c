/* pool.c: opening and closing. pool_file.c has the file; draft, reader and writer do the rest.
 *
 * Guarantees
 *  1. A file that is not a pool, or is newer, is not changed.
 *  2. If a listed version cannot be read, its slots are unknown: then no slot that exists at open
 *     is written, unless the user chose to drop damaged versions. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

static int open_media(struct pool *p, const struct place *at, int fd, const struct plat_stat *st)
{
        const struct pool_options *o = &p->options;
        struct media m = {
                .budget = p->budget, .fd = fd, .io_fd = fd, .bytes = st->bytes, .align = 1};
        m.least = UINT64_MAX;
        m.reserve = !o->probes || probe_has(o->probes, PROBE_FALLOCATE);
        m.in_memory = st->in_memory;
        bool pmem = st->dax && (!o->probes || probe_has(o->probes, PROBE_PMEM));
        bool mapped =
                o->media == MEDIA_MAPPED || (o->media == MEDIA_AUTO && (st->in_memory || pmem));
        if (mapped && !o->readonly)
                return media_mapped_new(m, o, &p->media);
        if (!o->readonly) {
                int direct = pool_file_open_direct(at, &m, o);
                if (direct >= 0) {
                        m.io_fd = direct;
                        m.align = SLOT_BYTES;
                } else if (o->direct == SWITCH_ON) {
                        (void)media_close_fds(&m);
                        return err_set(direct,
                                       "option direct is on, and pool '%s' cannot be opened so: %s",
                                       p->label, code_text(direct));
                }
        }
        return media_file_new(m, o, &p->media);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* The scratch buffer holds both superblocks as they were read and one decoded: all of it too large
 * for a stack. */
static uint8_t *super_bytes(const struct pool *p, uint32_t i)
{
        return p->scratch + (size_t)i * SUPER_BYTES;
}

static struct superblock *super_read(const struct pool *p)
{
        _Static_assert(2 * SUPER_BYTES + sizeof(struct superblock) <= SCRATCH_BYTES &&
                               LEAF_HEADER_BYTES + LEAF_ENTRIES * ENTRY_BYTES <= SCRATCH_BYTES,
                       "the scratch buffer has room for what is read into it");
        return (void *)(p->scratch + (size_t)2 * SUPER_BYTES);
}

/* Reads one superblock and notes what is wrong with it. */
static int read_superblock(struct pool *p, uint32_t i)
{
        uint8_t *buf = super_bytes(p, i);
        memset(buf, 0, SUPER_BYTES);
        int rc = media_read_now(p->media, buf, SUPER_BYTES, (uint64_t)i * SUPER_BYTES);
        rc = rc ? err_set(rc, "superblock %u of pool '%s' cannot be read: %s", i, p->label,
                          code_text(rc))
                : superblock_decode(buf, super_read(p));
        snprintf(p->super_state[i], sizeof(p->super_state[i]), "%s", rc ? err_text() : "");
        return rc;
}

static bool is_zero(const uint8_t *buf)
{
        return buf[0] == 0 && memcmp(buf, buf + 1, SUPER_BYTES - 1) == 0;
}

/* The superblock that is not current may be damaged. If it was the newer one, its version is lost.
 * A crash during a publication leaves the same behind, and then that version was never published;
 * only over the zeros of a new pool can the two be told apart: what is missing is zero there. */
static void judge_other(struct pool *p, const struct superblock *now, uint32_t i)
{
        uint8_t *buf = super_bytes(p, i);
        struct superblock *s = super_read(p);
        memset(&p->other, 0, sizeof(p->other));
        if (now->generation == 1 && is_zero(buf))
                p->super_state[i][0] = '\0'; /* not yet written */
        if (p->super_state[i][0] == '\0')
                return;
        p->other.damaged = true;
        bool sealed = get_u64(buf) && get_u64(buf + 16) && get_u64(buf + 24);
        bool legal = superblock_guess(buf, s) == 0 &&
                     memcmp(s->pool_id, now->pool_id, sizeof(s->pool_id)) == 0;
        if (legal && s->generation < now->generation)
                return;
        p->other.lost = now->next_version;
        if (!legal || !sealed || s->generation == now->generation || s->version_count == 0)
                return;
        const struct version_entry *last = &s->versions[s->version_count - 1];
        p->other.listed = s->created_ns && last->version >= now->next_version && last->time_ns &&
                          last->manifest.checksum.lo && last->manifest.checksum.hi;
        if (p->other.listed)
                p->other.lost = last->version;
}

/* Reads both superblocks and takes the newer valid one. */
int superblocks_read(struct pool *p, struct superblock *out, uint32_t *at)
{
        bool found = false;
        int worst = BELAY_E_FORMAT;
        const struct superblock *s = super_read(p);
        for (uint32_t i = 0; i < 2; i++) {
                int rc = read_superblock(p, i);
                bool marked = memcmp(super_bytes(p, i), "BLYSUPER", 8) == 0;
                /* The file is long enough, so this is no end of it. It may be the newer one, and
                 * readable the next time. Going on with the other would let versions be overwritten
                 * that are not lost. */
                bool unread = rc && rc != BELAY_E_FORMAT && rc != BELAY_E_DATA;
                if (unread && !p->options.readonly && p->options.damaged == DAMAGED_KEEP)
                        return rc;
                if (rc == BELAY_E_FORMAT && marked)
                        return err_wrap(rc, "pool '%s'", p->label);
                if (unread || (rc == BELAY_E_DATA && marked))
                        worst = rc;
                if (rc == 0 && (!found || s->generation > out->generation)) {
                        *out = *s;
                        *at = i;
                        found = true;
                }
        }
        if (found) {
                judge_other(p, out, 1 - *at);
                return 0;
        }
        if (worst == BELAY_E_FORMAT)
                return err_set(worst, "file '%s' is not a Belay pool; it was not changed",
                               p->label);
        return err_set(worst, "pool '%s': both superblocks are damaged (%s); it was not changed",
                       p->label, p->super_state[0]);
}

/* Neither the number nor the generation that the damaged superblock may have had is used again. */
static void skip_lost(struct pool *p)
{
        p->given_up = p->super.next_version - 1;
        if (!p->other.damaged || p->options.readonly)
                return;
        p->super.next_version = max_u64(p->super.next_version, p->other.lost);
        p->super.next_version += p->super.next_version < UINT64_MAX;
        p->super.generation += p->super.generation < UINT64_MAX;
}

static bool has_unchecked(const struct pool *p)
{
        for (uint32_t v = 0; v < p->version_count; v++)
                for (uint32_t i = 0; i < p->versions[v]->region_count; i++)
                        if (p->versions[v]->regions[i]->desc.hash == HASH_NONE)
                                return true;
        return false;
}

static void warn_lost(const struct pool *p)
{
        if (!p->other.damaged)
                return;
        uint32_t i = p->super_state[0][0] ? 0 : 1;
        if (p->other.lost == 0)
                log_emit(BELAY_LOG_WARN,
                         "pool '%s': superblock %u is damaged (%s); it was the older one, no "
                         "version is lost with it",
                         p->label, i, p->super_state[i]);
        else
                log_emit(BELAY_LOG_WARN,
                         "pool '%s': superblock %u is damaged (%s); version %llu%s is lost, if it "
                         "was published. Its number is not used again%s",
                         p->label, i, p->super_state[i], (unsigned long long)p->other.lost,
                         p->other.listed ? ", which it listed," : "",
                         has_unchecked(p) ? ". Older versions may have been overwritten since, and "
                                            "have blocks without checksums: check their content"
                                          : "");
}

/* Slots that a version of unknown extent may use: all that existed when it was first found so. */
static void hold_unknown(struct pool *p)
{
        uint64_t end = p->space.slots * SLOT_BYTES;
        p->held_bytes = p->super.held_bytes ? min_u64(p->super.held_bytes, end) : end;
        space_ref(&p->space, 0, p->held_bytes);
        log_emit(BELAY_LOG_WARN,
                 "pool '%s' is damaged; %llu bytes of it are kept as they are. Set the option "
                 "damaged to drop to let "
                 "damaged versions go",
                 p->label, (unsigned long long)p->held_bytes);
}

/* A reader beside a live writer says so only once it knows that the list did not change under it. */
static void warn_unreadable(const struct pool *p)
{
        for (uint32_t i = 0; i < p->version_count; i++)
                if (p->versions[i]->unreadable)
                        log_emit(BELAY_LOG_WARN, "pool '%s': version %llu is damaged: %s", p->label,
                                 (unsigned long long)p->versions[i]->number,
                                 p->versions[i]->damage);
}

static int load_versions(struct pool *p)
{
        bool unknown = pool_readable_bytes(p) < p->super.pool_bytes;
        for (uint32_t i = 0; i < p->super.version_count; i++) {
                struct version *before =
                        p->version_count ? p->versions[p->version_count - 1] : NULL;
                struct version *v;
                int rc = version_load(p, &p->super.versions[i], before, &v);
                if (rc)
                        return rc;
                p->versions[p->version_count++] = v;
                unknown |= v->unreadable;
        }
        if (!p->options.readonly)
                warn_unreadable(p);
        if (unknown && !p->options.readonly && p->options.damaged == DAMAGED_KEEP)
                hold_unknown(p);
        return 0;
}

uint64_t pool_readable_bytes(const struct pool *p)
{
        return min_u64(p->super.pool_bytes, p->media->bytes);
}

/* A sparse copy has holes, also where blocks of zeros are stored; a store into one on a full disk
 * would be a fault. Asking the file system to back what it has backed already would take time in
 * proportion to the pool, so it is asked only when there are holes. */
static int back_holes(struct pool *p)
{
        struct plat_stat st;
        struct media *m = p->media;
        int rc = m->ops->back ? plat->fstat(m->fd, &st) : 0;
        if (rc == 0 && (!m->ops->back || st.allocated >= m->bytes))
                return 0;
        if (rc == 0)
                rc = m->ops->back(m);
        return rc ? err_set(rc, "pool '%s' has holes that cannot be filled: %s", p->label,
                            code_text(rc))
                  : 0;
}

/* The size of a pool in use is taken after its superblocks: a writer first grows the file and then
 * lists what lies there. Taken before, the size could be too small for a version that is listed. */
static int take_size(struct pool *p)
{
        struct plat_stat st;
        if (!p->options.readonly)
                return 0; /* locked: it has not changed since it was opened */
        int rc = plat->fstat(p->media->fd, &st);
        if (rc)
                return err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        p->media->bytes = st.bytes;
        return 0;
}

static int load(struct pool *p)
{
        p->scratch = budget_alloc(p->budget, SCRATCH_BYTES, "the pool");
        if (!p->scratch)
                return -ENOMEM;
        int rc = superblocks_read_both(p, &p->super, &p->super_at);
        if (rc == 0)
                rc = take_size(p);
        if (rc == 0 && !p->options.readonly)
                rc = writer_init(p);
        if (rc == 0 && !p->options.readonly)
                rc = media_pace(p->media, &p->options);
        if (rc)
                return rc;
        skip_lost(p);
        if (!p->options.readonly) {
                p->space.budget = p->budget;
                rc = space_extend(&p->space, div_up(p->media->bytes, SLOT_BYTES));
                if (rc)
                        return rc;
                /* A file that ends within a slot: what lies there counts, and nothing is written
                 * there. */
                if (p->media->bytes % SLOT_BYTES)
                        space_ref(&p->space, p->media->bytes, 1);
                space_ref(&p->space, 0, FIRST_SLOT * SLOT_BYTES);
        }
        /* What a process that was killed had written and not flushed must not be built upon: a
         * crash could still take it back, after slots that only the older superblock lists have
         * been written. */
        if (!p->options.readonly) {
                rc = p->media->ops->barrier(p->media);
                if (rc)
                        return err_set(rc, "flush of pool '%s': %s", p->label, code_text(rc));
        }
        rc = load_versions(p);
        return rc || p->options.readonly ? rc : back_holes(p);
}

static void unload(struct pool *p)
{
        while (p->version_count)
                version_delete(p, p->versions[--p->version_count]);
        writer_delete(p);
        memset(&p->writer, 0, sizeof(p->writer));
        budget_free(p->budget, p->scratch);
        p->scratch = NULL;
}

/* A reader beside a live writer may meet a list that is just being replaced; the next try sees the
 * new one. */
static int load_steady(struct pool *p)
{
        for (int attempt = 0; attempt < LOAD_ATTEMPTS; attempt++) {
                int rc = load(p);
                bool damaged = rc == BELAY_E_DATA || p->other.damaged;
                for (uint32_t i = 0; i < p->version_count; i++)
                        damaged |= p->versions[i]->unreadable;
                if (!damaged || !p->options.readonly || !superblocks_changed(p))
                        return rc;
                unload(p);
        }
        return pool_too_fast(p);
}

/* ---- the pool ----------------------------------------------------------------------------------
 */

static int open_at(struct pool *p, const struct place *at)
{
        struct plat_stat st;
        int fd = -1;
        int rc = pool_file_open(p->label, at, p->options.readonly, &fd);
        if (rc)
                return rc;
        rc = plat->fstat(fd, &st);
        if (rc)
                rc = err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        if (rc == 0)
                rc = pool_file_check(p->label, &st, p->options.readonly);
        if (rc == 0 && !p->options.readonly)
                rc = pool_file_lock(p->label, fd);
        /* Only now is the size certain: until the lock was held another process could grow the
         * file. */
        if (rc == 0) {
                rc = plat->fstat(fd, &st);
                if (rc)
                        rc = err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        }
        if (rc == 0 && !p->options.readonly && st.bytes > plat->file_limit())
                rc = err_set(-EFBIG, "pool '%s' is larger than this process may write (ulimit -f)",
                             p->label);
        if (rc == 0 && st.bytes < FIRST_SLOT * SLOT_BYTES)
                rc = err_set(BELAY_E_FORMAT,
                             "file '%s' has %llu bytes and is not a Belay pool, or is cut off; it "
                             "was not changed",
                             p->label, (unsigned long long)st.bytes);
        if (rc) {
                (void)plat->close(fd);
                return rc;
        }
        rc = open_media(p, at, fd, &st);
        if (rc == 0)
                rc = load_steady(p);
        if (rc == 0 && p->options.readonly)
                warn_unreadable(p);
        if (rc == 0)
                warn_lost(p);
        /* A creation that was cut short may not have made the name durable. */
        if (rc == 0 && !p->options.readonly && p->super.generation == 1) {
                rc = plat->fsync(at->dir);
                rc = rc == -EBADF ? 0 : rc;
                if (rc)
                        rc = err_set(rc, "flush of the directory of pool '%s': %s", p->label,
                                     code_text(rc));
        }
        /* A copy of the descriptor in a child would keep the lock of the pool, or pins, when this
         * process has ended; also of a child that is made before the first pin. */
        if (rc == 0)
                plat_close_in_children(p->media->fd, p->media->io_fd);
        if (rc == 0 && !p->options.readonly)
                plat_close_in_children(p->place.dir, p->place.dir);
        return rc;
}

static int check_same_file(const struct pool *p, const struct pool *of)
{
        struct plat_stat a;
        struct plat_stat b;
        int rc = plat->fstat(p->media->fd, &a);
        if (rc == 0)
                rc = plat->fstat(of->media->fd, &b);
        if (rc)
                return err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        if (a.device == b.device && a.inode == b.inode)
                return 0;
        return err_set(-ENOENT,
                       "pool '%s' was renamed while in use, and another file is under its name now",
                       p->label);
}

/* `of`: the pool whose directory `at` is borrowed from, or NULL. */
static int open_in(const struct pool_options *o, struct place at, const struct pool *of,
                   struct pool **out)
{
        struct pool *p = budget_alloc(o->budget, sizeof(*p), "the pool");
        if (!p) {
                if (!of)
                        (void)plat->close(at.dir);
                return -ENOMEM;
        }
        memcpy(p->path, o->path, strlen(o->path) + 1);
        place_label(p->path, p->label, sizeof(p->label));
        p->options = *o;
        p->options.path = p->path;
        p->budget = o->budget;
        p->place = (struct place){at.dir, p->path + (at.name - o->path)};
        warm_up_init(p);
        int rc = open_at(p, &p->place);
        if (rc == 0 && of)
                rc = check_same_file(p, of);
        p->options.probes = NULL;
        if (o->readonly) {
                if (!of)
                        (void)plat->close(p->place.dir);
                p->place.dir = -1;
        }
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                (void)pool_close(&p);
                (void)err_give_back(&kept);
                return rc;
        }
        *out = p;
        return 0;
}

int pool_open(const struct pool_options *o, struct pool **out)
{
        struct place at;
        int rc = place_open(o->path, &at);
        return rc ? rc : open_in(o, at, NULL, out);
}

int pool_open_beside(const struct pool *of, const struct pool_options *o, struct pool **out)
{
        struct pool_options here = *o;
        here.path = of->path;
        here.readonly = true;
        return open_in(&here, of->place, of, out);
}

int pool_close(struct pool **pool)
{
        struct pool *p = *pool;
        *pool = NULL;
        if (!p)
                return 0;
        warm_up_close(p);
        draft_abort(&p->draft);
        /* A version that was reported as failed should not appear after all, nor one be gone that
         * was not replaced; if this fails too, it may. */
        if ((p->limbo || p->doubtful) && !p->media->lost)
                (void)pool_settle(p);
        pin_end_all(p);
        if (p->media)
                plat_forget_descriptors(p->media->fd, p->media->io_fd);
        if (p->place.dir >= 0) {
                plat_forget_descriptors(p->place.dir, p->place.dir);
                (void)plat->close(p->place.dir);
        }
        while (p->version_count)
                version_delete(p, p->versions[--p->version_count]);
        version_delete(p, p->limbo);
        draft_forget(p);
        pool_drop_spares(p);
        int rc = p->media ? p->media->ops->close(p->media) : 0;
        writer_delete(p);
        if (p->space.budget)
                space_delete(&p->space);
        budget_free(p->budget, p->avoided);
        budget_free(p->budget, p->scratch);
        if (rc)
                rc = err_set(rc, "close of pool '%s': %s", p->label, code_text(rc));
        budget_free(p->budget, p);
        return rc;
}

uint32_t pool_version_count(const struct pool *p)
{
        return p->version_count;
}

struct version *pool_version(const struct pool *p, uint32_t i)
{
        return p->versions[i];
}

struct version *pool_find_version(const struct pool *p, uint64_t number)
{
        for (uint32_t i = 0; i < p->version_count; i++)
                if (p->versions[i]->number == number)
                        return p->versions[i];
        return NULL;
}

void pool_mark_damaged(struct pool *p, struct version *v, const char *damage)
{
        v->flags |= VERSION_DAMAGED;
        printable(damage, v->damage, sizeof(v->damage));
        log_emit(BELAY_LOG_WARN, "pool '%s': version %llu is damaged: %s", p->label,
                 (unsigned long long)v->number, v->damage);
}

int pool_avoid_block(struct pool *p, const struct version *v, uint32_t region, uint64_t block)
{
        const struct stored_region *r = v->regions[region];
        uint64_t offset = r->leaves[block / LEAF_ENTRIES]->entries[block % LEAF_ENTRIES].offset;
        if (p->avoided_slots < p->space.slots) { /* the pool has grown, or there is none yet */
                uint64_t words = div_up(p->space.slots, 64);
                uint64_t *more = budget_resize(p->budget, p->avoided, words * sizeof(*more),
                                               "the list of damaged blocks");
                if (!more)
                        return -ENOMEM;
                p->avoided = more;
                p->avoided_slots = p->space.slots;
        }
        uint64_t end = div_up(offset + block_length(&r->desc, block), SLOT_BYTES);
        for (uint64_t slot = offset / SLOT_BYTES; slot < min_u64(end, p->avoided_slots); slot++)
                p->avoided[slot / 64] |= UINT64_C(1) << slot % 64;
        return 0;
}

void pool_confirm(struct pool *p, uint64_t version)
{
        p->super.confirmed = max_u64(p->super.confirmed, version);
}

int pool_check_number(const struct pool *p, uint64_t number)
{
        if (number >= p->super.next_version && number < UINT64_MAX)
                return 0;
        return err_set(-EINVAL,
                       "version %llu of pool '%s' cannot be: numbers up to %llu have been used",
                       (unsigned long long)number, p->label,
                       (unsigned long long)p->super.next_version - 1);
}

int pool_number_from(struct pool *p, uint64_t number)
{
        if (number == UINT64_MAX)
                return err_set(-EOVERFLOW, "pool '%s' has no version numbers left", p->label);
        p->super.next_version = max_u64(p->super.next_version, number);
        return 0;
}

int pool_take_id(struct pool *p, const uint8_t id[16])
{
        if (p->version_count || p->draft)
                return err_set(-EBUSY, "pool '%s' has versions, its id cannot change", p->label);
        memcpy(p->super.pool_id, id, sizeof(p->super.pool_id));
        return 0;
}

struct budget *pool_budget(const struct pool *p)
{
        return p->budget;
}

uint64_t pool_lost(const struct pool *p)
{
        return p->version_count == 0 ? p->given_up : 0;
}

bool pool_overlaps(const struct pool *p)
{
        return p->media->overlaps;
}

void pool_info(const struct pool *p, struct pool_info *out)
{
        struct ahead ahead = media_ahead(p->media);
        *out = (struct pool_info){
                .path = p->path,
                .media = p->media->description,
                .file_bytes = p->media->bytes,
                .ahead_bytes = ahead.bytes > ahead.taken ? ahead.bytes - ahead.taken : 0,
                .pool_bytes = p->super.pool_bytes,
                .used_bytes = (p->space.slots - p->space.free) * SLOT_BYTES,
                .generation = p->super.generation,
                .created_ns = p->super.created_ns,
                .format = p->super.format,
                .confirmed = p->super.confirmed,
                .place = p->super.place,
                .job = p->super.job,
                .newest = p->version_count ? p->versions[p->version_count - 1]->number : 0,
                .next = p->super.next_version,
                .lost = p->other.lost,
                .lost_listed = p->other.listed,
        };
        memcpy(out->id, p->super.pool_id, sizeof(out->id));
        out->superblock[0] = p->super_state[0];
        out->superblock[1] = p->super_state[1];
}
