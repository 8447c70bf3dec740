/* facts.c: opening a pool to look at it, and what is known of it without reading blocks. */
#include "read/read_int.h"
#include <errno.h>

int read_end(int rc)
{
        if (rc < 0)
                err_show();
        return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int take_options(const struct belay_reader_options *in, struct belay_reader_options *out)
{
        *out = (struct belay_reader_options){.size = sizeof(*out)};
        if (!in)
                return 0;
        int rc = sized_take(out, in, sizeof(*out), 2 * sizeof(size_t), "belay_reader_open");
        if (rc)
                return rc;
        if (out->flags & ~(BELAY_READER_PLAIN | BELAY_READER_URING) || out->reserved)
                return err_set(-EINVAL, "belay_reader_open: unknown flags 0x%x", out->flags);
        if (out->flags == (BELAY_READER_PLAIN | BELAY_READER_URING))
                return err_set(-EINVAL, "belay_reader_open: the flags exclude each other");
        return 0;
}

static int open_pool(const char *path, const struct belay_reader_options *o, struct belay_reader *r)
{
        struct probe probes[PROBE_COUNT];
        int rc = probe_check(o->features_off ? o->features_off : "", probes);
        if (rc)
                return rc;
        r->budget.limit = o->memory_bytes ? o->memory_bytes : plat->memory_bytes() / 4;
        struct pool_options wanted = {
                .path = path,
                .readonly = true,
                .media = MEDIA_FILE,
                .io = o->flags & BELAY_READER_PLAIN   ? IO_PWRITE
                      : o->flags & BELAY_READER_URING ? IO_URING
                                                      : IO_AUTO,
                .probes = probes,
                .budget = &r->budget,
        };
        return pool_open(&wanted, &r->pool);
}

static int open_reader(const char *path, const struct belay_reader_options *options,
                       struct belay_reader **out)
{
        struct belay_reader_options o;
        if (!path || !out)
                return err_set(-EINVAL, "belay_reader_open: an argument is NULL");
        int rc = take_options(options, &o);
        if (rc)
                return rc;
        struct belay_reader *r = plat->alloc(sizeof(*r));
        if (!r)
                return err_set(-ENOMEM, "no memory for a reader");
        rc = open_pool(path, &o, r);
        if (rc) {
                plat->release(r);
                return rc;
        }
        *out = r;
        return 0;
}

int belay_reader_open(const char *path, const struct belay_reader_options *options,
                      struct belay_reader **out)
{
        return read_end(open_reader(path, options, out));
}

int belay_reader_close(struct belay_reader **reader)
{
        struct belay_reader *r = reader ? *reader : NULL;
        if (!r)
                return 0;
        *reader = NULL;
        reader_delete(&r->reader);
        int rc = pool_close(&r->pool);
        plat->release(r);
        return read_end(rc);
}

static int check(const struct belay_reader *r, const char *call)
{
        return r ? 0 : err_set(-EINVAL, "%s: there is no reader", call);
}

int belay_reader_refresh(struct belay_reader *r)
{
        int rc = check(r, "belay_reader_refresh");
        if (rc == 0 && r->busy)
                rc = err_set(-EBUSY, "belay_reader_refresh: the reader is reading");
        return read_end(rc ? rc : pool_refresh(r->pool));
}

int belay_reader_recognize(int fd)
{
        return pool_recognize(fd);
}

/* ---- the pool -------------------------------------------------------------------------------- */

int belay_reader_facts(struct belay_reader *r, struct belay_reader_facts *out)
{
        int rc = check(r, "belay_reader_facts");
        if (rc)
                return read_end(rc);
        struct pool_info info;
        pool_info(r->pool, &info);
        struct belay_reader_facts f = {
                .created_ns = info.created_ns,
                .generation = info.generation,
                .file_bytes = info.file_bytes,
                .pool_bytes = info.pool_bytes,
                .newest = info.newest,
                .confirmed = info.confirmed,
                .version_count = pool_version_count(r->pool),
                .format = info.format,
                .job = info.job,
                .incarnation = info.place.incarnation,
                .rank = info.place.rank,
                .members = info.place.members,
                .superblock = {info.superblock[0], info.superblock[1]},
                .lost = info.lost,
                .lost_listed = info.lost_listed,
                .media = info.media,
        };
        memcpy(f.id, info.id, sizeof(f.id));
        return read_end(sized_give(out, &f, sizeof(f), "belay_reader_facts"));
}

/* ---- versions -------------------------------------------------------------------------------- */

int read_version(const struct belay_reader *r, uint64_t number, struct version **out)
{
        if (!r)
                return err_set(-EINVAL, "there is no reader");
        struct pool_info info;
        pool_info(r->pool, &info);
        uint64_t wanted = number ? number : info.newest;
        *out = wanted ? pool_find_version(r->pool, wanted) : NULL;
        if (*out)
                return 0;
        if (!number)
                return err_set(-ENOENT, "pool '%s' has no version", info.path);
        return err_set(-ENOENT, "pool '%s' has no version %llu", info.path,
                       (unsigned long long)number);
}

static int give_version(const struct version *v, struct belay_reader_version *out)
{
        struct belay_reader_version f = {
                .number = v->number,
                .time_ns = v->time_ns,
                .frozen_ns = v->frozen_ns,
                .data_bytes = v->data_bytes,
                .region_count = v->region_count,
                .state = v->unreadable       ? BELAY_VERSION_UNREADABLE
                         : version_usable(v) ? BELAY_VERSION_GOOD
                                             : BELAY_VERSION_MARKED,
                .damage = v->damage,
                .incarnation = v->place.incarnation,
                .rank = v->place.rank,
                .members = v->place.members,
        };
        return sized_give(out, &f, sizeof(f), "belay_reader_version");
}

int belay_reader_version(struct belay_reader *r, uint64_t number, struct belay_reader_version *out)
{
        struct version *v;
        int rc = read_version(r, number, &v);
        return read_end(rc ? rc : give_version(v, out));
}

int belay_reader_version_at(struct belay_reader *r, uint32_t i, struct belay_reader_version *out)
{
        int rc = check(r, "belay_reader_version_at");
        if (rc == 0 && i >= pool_version_count(r->pool))
                rc = err_set(-ENOENT, "the pool has %u versions, there is none at place %u",
                             pool_version_count(r->pool), i);
        return read_end(rc ? rc : give_version(pool_version(r->pool, i), out));
}

int read_confirm(struct belay_reader *r, const struct version *v, int rc)
{
        struct err_kept kept;
        err_keep(&kept);
        int listed = pool_lists(r->pool, v);
        if (listed < 0)
                return listed;
        if (!listed)
                return pool_gone(r->pool, v->number);
        return rc ? err_give_back(&kept) : 0;
}

int belay_reader_check(struct belay_reader *r, uint64_t version)
{
        struct version *v;
        int rc = read_version(r, version, &v);
        return read_end(rc ? rc : read_confirm(r, v, 0));
}

int belay_reader_pin(struct belay_reader *r, uint64_t version)
{
        int rc = check(r, "belay_reader_pin");
        return read_end(rc ? rc : pool_pin(r->pool, version));
}

int belay_reader_unpin(struct belay_reader *r, uint64_t version)
{
        int rc = check(r, "belay_reader_unpin");
        if (rc == 0)
                pool_unpin(r->pool, version);
        return read_end(rc);
}

/* ---- regions --------------------------------------------------------------------------------- */

int read_region(const struct belay_reader *r, uint64_t version, uint32_t region,
                struct version **out)
{
        int rc = read_version(r, version, out);
        if (rc)
                return rc;
        if ((*out)->unreadable)
                return err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                               (unsigned long long)(*out)->number, (*out)->damage);
        if (region >= (*out)->region_count)
                return err_set(-ENOENT, "version %llu has %u regions, there is no number %u",
                               (unsigned long long)(*out)->number, (*out)->region_count, region);
        return 0;
}

static void give_box(const struct box *from, struct belay_box *to)
{
        memcpy(to->start, from->start, sizeof(to->start));
        memcpy(to->dims, from->dims, sizeof(to->dims));
}

static int give_region(const struct version *v, uint32_t i, struct belay_reader_region *out)
{
        const struct region_desc *d = &v->regions[i]->desc;
        struct belay_reader_region f = {
                .version = v->number,
                .name = d->name,
                .bytes = d->bytes,
                .blocks = region_blocks(d),
                .index = i,
                .type = d->type,
                .element_bytes = d->element_bytes,
                .block_bytes = d->block_bytes,
                .hash = d->hash,
                .ndims = d->ndims,
                .global_ndims = d->global_ndims,
                .box_count = d->box_count,
        };
        memcpy(f.dims, d->dims, d->ndims * sizeof(f.dims[0]));
        memcpy(f.global_dims, d->global_dims, d->global_ndims * sizeof(f.global_dims[0]));
        if (d->box_count)
                give_box(&d->box, &f.box);
        return sized_give(out, &f, sizeof(f), "belay_reader_region");
}

int belay_reader_region(struct belay_reader *r, uint64_t version, uint32_t index,
                        struct belay_reader_region *out)
{
        struct version *v;
        int rc = read_region(r, version, index, &v);
        return read_end(rc ? rc : give_region(v, index, out));
}

static int find_region(const struct belay_reader *r, uint64_t version, const char *name,
                       struct belay_reader_region *out)
{
        struct version *v;
        char shown[BELAY_MAX_NAME + 1];
        int rc = read_version(r, version, &v);
        if (rc)
                return rc;
        if (!name)
                return err_set(-EINVAL, "belay_reader_find: there is no name");
        if (v->unreadable)
                return err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                               (unsigned long long)v->number, v->damage);
        int64_t at = version_find(v, name);
        if (at < 0)
                return err_set(-ENOENT, "version %llu has no region '%s'",
                               (unsigned long long)v->number,
                               printable(name, shown, sizeof(shown)));
        return give_region(v, (uint32_t)at, out);
}

int belay_reader_find(struct belay_reader *r, uint64_t version, const char *name,
                      struct belay_reader_region *out)
{
        return read_end(find_region(r, version, name, out));
}

int belay_reader_boxes(struct belay_reader *r, uint64_t version, uint32_t region,
                       struct belay_box *out, uint32_t room)
{
        struct version *v;
        int rc = read_region(r, version, region, &v);
        if (rc)
                return read_end(rc);
        const struct region_desc *d = &v->regions[region]->desc;
        for (uint32_t i = 0; i < d->box_count && i < room; i++)
                give_box(region_box(d, i), &out[i]);
        return (int)d->box_count;
}

const char *belay_type_name(uint32_t type)
{
        return type <= BELAY_C128 ? type_name(type) : NULL;
}

const char *belay_hash_name(uint32_t hash)
{
        return hash < HASH_KINDS ? hash_kind_name(hash) : NULL;
}
