/* refresh.c: a readonly pool takes over what was published since it was opened.
 *
 * Versions that are still listed stay as they are in memory; only new ones are read. If that fails,
 * everything is as it was before. */
#include "store/store_int.h"
#include <errno.h>

/* What a refresh replaces. */
struct listing {
        struct superblock super;
        uint32_t super_at;
        char super_state[2][sizeof(((struct pool *)NULL)->super_state[0])];
        struct lost_list other;
        uint64_t given_up, file_bytes;
        struct version *versions[MAX_VERSIONS];
        uint32_t count;
};

static void keep(const struct pool *p, struct listing *l)
{
        l->super = p->super;
        l->super_at = p->super_at;
        memcpy(l->super_state, p->super_state, sizeof(l->super_state));
        l->other = p->other;
        l->given_up = p->given_up;
        l->file_bytes = p->media->bytes;
        memcpy(l->versions, p->versions, sizeof(l->versions));
        l->count = p->version_count;
}

static void put_back(struct pool *p, const struct listing *l)
{
        p->super = l->super;
        p->super_at = l->super_at;
        memcpy(p->super_state, l->super_state, sizeof(l->super_state));
        p->other = l->other;
        p->given_up = l->given_up;
        p->media->bytes = l->file_bytes;
        memcpy(p->versions, l->versions, sizeof(l->versions));
        p->version_count = l->count;
}

/* The version as it is known already, or NULL. */
static struct version *known(const struct listing *l, const struct version_entry *e)
{
        for (uint32_t i = 0; i < l->count; i++) {
                struct version *v = l->versions[i];
                if (v->number == e->version && v->manifest.offset == e->manifest.offset &&
                    hash_equal(v->manifest.checksum, e->manifest.checksum) &&
                    v->flags == e->flags && !v->unreadable)
                        return v;
        }
        return NULL;
}

static bool has(struct version *const *list, uint32_t count, const struct version *v)
{
        uint32_t i = 0;
        while (i < count && list[i] != v)
                i++;
        return i < count;
}

/* Frees what `list` has and `other` has not. */
static void drop(struct pool *p, struct version *const *list, uint32_t count,
                 struct version *const *other, uint32_t other_count)
{
        for (uint32_t i = 0; i < count; i++)
                if (!has(other, other_count, list[i]))
                        version_delete(p, list[i]);
}

/* The versions of p->super, by what `before` knows and by reading. */
static int load_list(struct pool *p, const struct listing *before)
{
        p->version_count = 0;
        for (uint32_t i = 0; i < p->super.version_count; i++) {
                const struct version_entry *e = &p->super.versions[i];
                struct version *v = known(before, e);
                const struct version *last = i ? p->versions[i - 1] : NULL;
                if (!last && before->count)
                        last = before->versions[before->count - 1];
                int rc = v ? 0 : version_load(p, e, last, &v);
                if (rc)
                        return rc;
                p->versions[p->version_count++] = v;
        }
        return 0;
}

static int read_list(struct pool *p, const struct listing *before, bool *changed)
{
        struct plat_stat st;
        int rc = superblocks_read_both(p, &p->super, &p->super_at);
        if (rc)
                return rc;
        *changed = p->super.generation != before->super.generation;
        if (!*changed)
                return 0;
        p->given_up = p->super.next_version - 1;
        /* After the superblocks: a writer first grows the file and then lists what lies there. */
        rc = plat->fstat(p->media->fd, &st);
        if (rc)
                return err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        p->media->bytes = st.bytes;
        return load_list(p, before);
}

static bool looks_damaged(const struct pool *p)
{
        bool damaged = p->other.damaged;
        for (uint32_t i = 0; i < p->version_count; i++)
                damaged |= p->versions[i]->unreadable;
        return damaged;
}

int pool_too_fast(const struct pool *p)
{
        return err_set(-EAGAIN, "pool '%s' changes faster than it can be read; try again",
                       p->label);
}

int pool_refresh(struct pool *p)
{
        struct listing before;
        int rc = 0;
        keep(p, &before);
        for (int attempt = 0; attempt < LOAD_ATTEMPTS; attempt++) {
                bool changed = false;
                rc = read_list(p, &before, &changed);
                if (rc == 0 && looks_damaged(p) && superblocks_changed(p))
                        rc = pool_too_fast(p); /* a list that was just being replaced */
                if (rc == 0) {
                        drop(p, before.versions, before.count, p->versions, p->version_count);
                        return changed;
                }
                drop(p, p->versions, p->version_count, before.versions, before.count);
                put_back(p, &before);
                if (rc != -EAGAIN)
                        break;
        }
        return rc;
}

int pool_gone(const struct pool *p, uint64_t version)
{
        return err_set(-ESTALE,
                       "version %llu of pool '%s' is gone: the program that writes the pool has "
                       "given it up",
                       (unsigned long long)version, p->label);
}
