/* variables.c: variables in memory and in the pool, by id, over one context of the process: what is
 * behind the calls of belay/nvm.h.
 *
 * A persistent variable is a region; its name is what genid was given, or made of the id. Variables
 * are allocated one by one, also after a crash, so each is restored when it is allocated; all of
 * them from the version that was the newest when the context was opened, or from a later one, which
 * is the same: a version that is made before all have been allocated again carries the others over.
 *
 * Variables that are not persistent are in a registry of their own, which no checkpoint sees.
 *
 * The calls themselves are in libbelay-nvm (src/nvm/nvm.c), since their names have no prefix and a
 * program of belay.h may have functions of its own that are called so. They need the context's
 * insides, so all that they do is here, and libbelay exports it under names that begin with
 * belay_private_. */
#include "api/api_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* What genid was given, by id: a hash table in which a search ends at the first free place. */
struct known {
        uint64_t id; /* 0: free */
        char *name;
};

static struct belay *context;
static struct regions volatiles; /* the variables that are not persistent */
static struct known *known;
static uint32_t known_count, known_places; /* places: a power of two */
static uint32_t matrices;
static bool verified; /* what the pool held when it was opened */

/* ---- the context -------------------------------------------------------------------------------
 */

static int close_context(void);
static void close_at_exit(void)
{
        (void)close_context();
}

static struct belay *open_context(void)
{
        static bool registered;
        if (context || belay_open(NULL, &context))
                return context;
        engine_carry(context->engine, true);
        regions_init(&volatiles, &context->budget);
        if (!registered)
                registered = atexit(close_at_exit) == 0;
        return context;
}

static int close_context(void)
{
        if (context)
                regions_clear(&volatiles);
        int rc = belay_close(&context);
        for (uint32_t i = 0; i < known_places; i++)
                plat->release(known[i].name);
        plat->release(known);
        known = NULL;
        known_count = known_places = matrices = 0;
        verified = false;
        return rc;
}

/* ---- names -------------------------------------------------------------------------------------
 */

/* Where the id is, or would be. Ids of genid are hashes, others are the program's choice. */
static struct known *find_place(struct known *places, uint32_t count, uint64_t id)
{
        uint32_t i = (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (count - 1);
        while (places[i].id && places[i].id != id)
                i = (i + 1) & (count - 1);
        return &places[i];
}

static const char *known_name(uint64_t id)
{
        return known_places ? find_place(known, known_places, id)->name : NULL;
}

static int make_places(void)
{
        uint32_t count = known_places ? known_places * 2 : 64;
        struct known *places = plat->alloc(count * sizeof(*places));
        if (!places)
                return err_set(-ENOMEM, "no memory for the names of variables");
        for (uint32_t i = 0; i < known_places; i++)
                if (known[i].id)
                        *find_place(places, count, known[i].id) = known[i];
        plat->release(known);
        known = places;
        known_places = count;
        return 0;
}

static int add_name(uint64_t id, const char *name)
{
        int rc = known_count * 2 >= known_places ? make_places() : 0;
        size_t bytes = strlen(name) + 1;
        char *copy = rc ? NULL : plat->alloc(bytes);
        if (!copy)
                return rc ? rc : err_set(-ENOMEM, "no memory for the name of a variable");
        memcpy(copy, name, bytes);
        *find_place(known, known_places, id) = (struct known){id, copy};
        known_count++;
        return 0;
}

static uint64_t id_of(const char *varname)
{
        if (!varname) {
                (void)err_set(-EINVAL, "genid: the name of the variable is NULL");
                return 0;
        }
        if (name_check(varname))
                return 0;
        uint64_t id = hash_name(varname);
        id += id == 0;
        const char *before = known_name(id);
        if (before && strcmp(before, varname) != 0) {
                (void)err_set(-EEXIST, "'%s' and '%s' have the same id; rename one", varname,
                              before);
                return 0;
        }
        return before || add_name(id, varname) == 0 ? id : 0;
}

/* What the variable is called in the pool; the text is the caller's. */
static int name_of(uint64_t id, char name[BELAY_MAX_NAME + 1])
{
        if (id == 0)
                return err_set(-EINVAL, "0 is not the id of a variable; did genid fail?");
        const char *given = known_name(id);
        if (given)
                snprintf(name, BELAY_MAX_NAME + 1, "%s", given);
        else
                snprintf(name, BELAY_MAX_NAME + 1, "id-%016llx", (unsigned long long)id);
        return open_context() ? 0 : err_code();
}

/* A variable that the program has, persistent or not. */
static int find_variable(uint64_t id, char name[BELAY_MAX_NAME + 1], struct region **out)
{
        int rc = name_of(id, name);
        if (rc)
                return rc;
        *out = region_find(&volatiles, name);
        return *out ? 0 : registry_find(context, name, out);
}

static bool is_volatile(const struct region *r)
{
        return region_find(&volatiles, r->desc.name) == r;
}

/* ---- what the pool has -------------------------------------------------------------------------
 */

/* The newest that is intact; NULL if there is none yet. Later ones carry over what has not been
 * allocated yet, so it does not matter which of them it is. Verified before the first variable is
 * taken from it, unless it is to be mapped unseen. */
static int choose_version(bool verify, const struct version **out)
{
        int rc = restore_choose(&context->levels, verify, out);
        if (rc != BELAY_E_DATA)
                return rc;
        if (context->options.number[OPT_DAMAGED] == DAMAGED_DROP) {
                log_emit(BELAY_LOG_WARN, "%s; the variables begin anew", err_text());
                return 0;
        }
        return err_wrap(rc, "variables cannot be brought back; to begin anew, set the option "
                            "damaged to drop or take another pool");
}

static int choose_verified(const struct version **out)
{
        bool unseen = context->options.number[OPT_RESTART] == RESTART_LAZY &&
                      pool_is_mapped(context->levels.pool);
        int rc = choose_version(!unseen && !verified, out);
        verified = verified || rc == 0;
        return rc;
}

/* -ENOENT if there is no copy of the variable. */
static int find_stored(const char *name, uint64_t *bytes)
{
        const struct version *version = NULL;
        engine_quiesce(context->engine);
        bool dropped = engine_dropped(context->engine, name);
        int rc = dropped ? 0 : choose_verified(&version);
        engine_resume(context->engine);
        int64_t at = version ? version_find(version, name) : -1;
        if (rc == 0 && at < 0)
                rc = err_set(-ENOENT, "the pool has no variable '%s'", name);
        if (rc == 0)
                *bytes = version->regions[at]->desc.bytes;
        return rc;
}

/* Placing data is not the program's writing. */
static int bring_back(const char *name)
{
        struct restore_request q = {.how = context->options.number[OPT_RESTART],
                                    .lazy = &context->lazy[context->lazy_now]};
        const struct version *version;
        struct region *r;
        int rc = registry_find(context, name, &r);
        if (rc)
                return rc;
        int second = 0;
        engine_quiesce(context->engine);
        if (!engine_dropped(context->engine, name)) {
                r = engine_release(context->engine, r);
                rc = choose_verified(&version);
                if (rc == 0)
                        rc = restore_region(&context->levels, version, r, &q);
                second = engine_watch(context->engine, r);
        }
        engine_resume(context->engine);
        return rc < 0 ? rc : second;
}

/* With the option replace the version before is given up first: nothing can be carried over. */
static int check_replace(const struct region *only)
{
        uint32_t count = pool_version_count(context->levels.pool);
        const struct version *v = count ? pool_version(context->levels.pool, count - 1) : NULL;
        if (only)
                return err_set(-EOPNOTSUPP,
                               "variable '%s' cannot be checkpointed alone: with the option "
                               "replace the others would be lost. Use nvchkptall",
                               only->desc.name);
        for (uint32_t i = 0; v && i < v->region_count; i++) {
                const char *name = v->regions[i]->desc.name;
                if (region_find(&context->regions, name) || engine_dropped(context->engine, name))
                        continue;
                return err_set(-EOPNOTSUPP,
                               "with the option replace this checkpoint would lose variable '%s', "
                               "which was not allocated yet: allocate or delete it first",
                               name);
        }
        return 0;
}

/* A program that did not find its variables must not put others in their place, unless the user
 * says so: where no version is intact, nothing is checkpointed. */
static int check_begin(const struct region *only)
{
        const struct version *version;
        bool replace = context->options.number[OPT_REPLACE] != 0;
        if (verified && !replace)
                return 0;
        engine_quiesce(context->engine);
        int rc = verified ? 0 : choose_version(false, &version);
        if (rc == 0 && replace)
                rc = check_replace(only);
        engine_resume(context->engine);
        return rc;
}

static int checkpoint(struct region *only)
{
        int rc = check_begin(only);
        return rc ? rc : context_checkpoint(context, only);
}

/* ---- variables ---------------------------------------------------------------------------------
 */

/* The variable that cannot be brought back is not one; the error stays. */
static void give_up(const char *name, bool owned)
{
        struct err_kept kept;
        err_keep(&kept);
        (void)(owned ? belay_free(context, name) : belay_detach(context, name));
        (void)err_give_back(&kept);
}

static int check_free(const char *name)
{
        return region_find(&volatiles, name) || region_find(&context->regions, name)
                       ? err_set(-EEXIST, "there is a variable '%s' already; delete it first", name)
                       : 0;
}

static void *allocate_volatile(const struct belay_desc *desc)
{
        struct region_desc d;
        struct region *r;
        if (registry_describe(context, desc, &d) || region_alloc(&volatiles, &d, &r))
                return NULL;
        return r->ptr;
}

static void *allocate(uint64_t id, const struct belay_desc *shape, int persistent)
{
        char name[BELAY_MAX_NAME + 1];
        struct belay_desc d = *shape;
        if (name_of(id, name) || check_free(name))
                return NULL;
        d.name = name;
        d.size = sizeof(d);
        d.flags = BELAY_CHUNK;
        if (!persistent)
                return allocate_volatile(&d);
        void *p = belay_alloc_desc(context, &d);
        if (!p || bring_back(name) == 0)
                return p;
        give_up(name, true);
        return NULL;
}

/* Fortran's first dimension varies fastest. */
static void *allocate_matrix(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element,
                             int persistent)
{
        struct belay_desc d = {.type = element == sizeof(double) ? BELAY_F64 : BELAY_RAW,
                               .element_bytes = (uint32_t)element,
                               .ndims = 2,
                               .dims = {dim2, dim1}};
        if (element == 0 || element > UINT32_MAX) {
                (void)err_set(-EINVAL, "nv2dalloc_id: elements of %zu bytes", element);
                return NULL;
        }
        return allocate(id, &d, persistent);
}

static int attach(uint64_t id, void *src, size_t size)
{
        char name[BELAY_MAX_NAME + 1];
        int rc = name_of(id, name);
        if (rc == 0)
                rc = check_free(name);
        if (rc == 0)
                rc = belay_attach(context, name, BELAY_U8, size, src);
        if (rc)
                return rc;
        rc = bring_back(name);
        if (rc)
                give_up(name, false);
        return rc;
}

static int change_size(uint64_t id, void *src, size_t size, void **out)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r;
        int rc = find_variable(id, name, &r);
        if (rc)
                return rc;
        uint64_t row = r->desc.bytes / max_u64(r->desc.dims[0], 1);
        if (row == 0 || size % row)
                return err_set(-EINVAL, "variable '%s': %zu bytes are not a multiple of %llu", name,
                               size, (unsigned long long)row);
        *out = src;
        if (!r->owned)
                return belay_move(context, name, size / row, src);
        if (src != r->ptr)
                return err_set(-EINVAL, "variable '%s' is not at the address given", name);
        if (!is_volatile(r)) {
                *out = belay_resize(context, name, size / row);
                return *out ? 0 : err_code();
        }
        uint64_t dims[BELAY_MAX_DIMS];
        memcpy(dims, r->desc.dims, sizeof(dims));
        dims[0] = size / row;
        rc = region_reshape(&volatiles, r, dims, NULL);
        *out = r->ptr;
        return rc;
}

/* The variable's copy may be in the pool though the program does not have it, or not as a
 * persistent one. */
static int delete_variable(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r = NULL;
        uint64_t bytes;
        int rc = find_variable(id, name, &r);
        if (rc && rc != -ENOENT)
                return rc;
        bool persistent = r && !is_volatile(r);
        int stored = persistent ? 0 : find_stored(name, &bytes);
        if (stored && (stored != -ENOENT || !r))
                return stored;
        if (stored == 0)
                rc = engine_drop(context->engine, name);
        if (r && rc == 0 && !persistent)
                region_remove(&volatiles, r);
        else if (r && rc == 0)
                rc = r->owned ? belay_free(context, name) : belay_detach(context, name);
        return rc;
}

static int checkpoint_one(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r;
        int rc = find_variable(id, name, &r);
        if (rc == 0 && is_volatile(r))
                rc = err_set(-EINVAL, "variable '%s' is not persistent: it has no copy in the pool",
                             name);
        return rc ? rc : checkpoint(r);
}

/* ---- the calls --------------------------------------------------------------------------------
 */

uint64_t belay_private_genid(const char *varname)
{
        uint64_t id = id_of(varname);
        (void)call_end(context, id ? 0 : err_code());
        return id;
}

void *belay_private_nvalloc(uint64_t id, size_t size, int persistent)
{
        struct belay_desc d = {.type = BELAY_U8, .ndims = 1, .dims = {size}};
        void *p = allocate(id, &d, persistent);
        return call_end_pointer(context, p);
}

void *belay_private_nv2dalloc(uint64_t dim1, uint64_t dim2)
{
        char name[32];
        snprintf(name, sizeof(name), "matrix-%u", matrices + 1);
        uint64_t id = id_of(name);
        void *p = id ? allocate_matrix(id, dim1, dim2, sizeof(double), 1) : NULL;
        matrices += p != NULL;
        return call_end_pointer(context, p);
}

void *belay_private_nv2dalloc_id(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element,
                                 int persistent)
{
        void *p = allocate_matrix(id, dim1, dim2, element, persistent);
        return call_end_pointer(context, p);
}

int belay_private_nvattach(uint64_t id, void *src, size_t size)
{
        int rc = attach(id, src, size);
        return call_end(context, rc);
}

void *belay_private_nvrealloc(uint64_t id, void *src, size_t size)
{
        void *p;
        int rc = change_size(id, src, size, &p);
        return call_end_pointer(context, rc ? NULL : p);
}

size_t belay_private_nvsize(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        uint64_t bytes = 0;
        int rc = name_of(id, name);
        if (rc == 0)
                rc = find_stored(name, &bytes);
        (void)call_end(context, rc);
        return (size_t)bytes;
}

int belay_private_nvdelete(uint64_t id)
{
        int rc = delete_variable(id);
        return call_end(context, rc);
}

int belay_private_nvchkptall(void)
{
        int rc = open_context() ? checkpoint(NULL) : err_code();
        return call_end(context, rc);
}

int belay_private_nvchkptid(uint64_t id)
{
        int rc = checkpoint_one(id);
        return call_end(context, rc);
}

struct belay *belay_private_nvcontext(void)
{
        (void)open_context();
        return call_end_pointer(context, context);
}

int belay_private_nvclose(void)
{
        return call_end(NULL, close_context());
}
