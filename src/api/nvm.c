/* nvm.c: the calls of the NVM-checkpoints paper, over one context of the process.
 *
 * A variable is a region; its name is what genid was given, or made of the id. Variables are
 * allocated one by one, also after a crash, so each is restored when it is allocated; all of them
 * from the version that was the newest when the context was opened, or from a later one, which is
 * the same: a version that is made before all have been allocated again carries the others over. */
#include "api/api_int.h"
#include <belay/nvm.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct variable {
        uint64_t id;
        char name[BELAY_MAX_NAME + 1];
};

static struct belay *context;
static struct variable *variables;
static uint32_t variable_count, variable_capacity;
static uint32_t matrices;
static bool verified; /* what the pool held when it was opened */

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
        if (!registered)
                registered = atexit(close_at_exit) == 0;
        return context;
}

static int close_context(void)
{
        int rc = belay_close(&context);
        plat->release(variables);
        variables = NULL;
        variable_count = variable_capacity = matrices = 0;
        verified = false;
        return rc;
}

static const char *known_name(uint64_t id)
{
        for (uint32_t i = 0; i < variable_count; i++)
                if (variables[i].id == id)
                        return variables[i].name;
        return NULL;
}

static int add_variable(uint64_t id, const char *name)
{
        if (variable_count == variable_capacity) {
                uint32_t capacity = variable_capacity ? variable_capacity * 2 : 64;
                struct variable *grown = plat->alloc(capacity * sizeof(*grown));
                if (!grown)
                        return err_set(-ENOMEM, "no memory for the names of variables");
                if (variable_count)
                        memcpy(grown, variables, variable_count * sizeof(*grown));
                plat->release(variables);
                variables = grown;
                variable_capacity = capacity;
        }
        struct variable *v = &variables[variable_count++];
        v->id = id;
        snprintf(v->name, sizeof(v->name), "%s", name);
        return 0;
}

static uint64_t id_of(const char *varname)
{
        if (!varname)
                (void)err_set(-EINVAL, "genid: the name of the variable is NULL");
        if (!varname || name_check(varname))
                return 0;
        uint64_t id = hash_name(varname);
        id += id == 0;
        const char *known = known_name(id);
        if (known && strcmp(known, varname) != 0) {
                (void)err_set(-EEXIST, "'%s' and '%s' have the same id; rename one", varname,
                              known);
                return 0;
        }
        return known || add_variable(id, varname) == 0 ? id : 0;
}

/* What the variable is called in the pool; the text is the caller's. */
static int name_of(uint64_t id, char name[BELAY_MAX_NAME + 1])
{
        if (id == 0)
                return err_set(-EINVAL, "0 is not the id of a variable; did genid fail?");
        const char *known = known_name(id);
        if (known)
                snprintf(name, BELAY_MAX_NAME + 1, "%s", known);
        else
                snprintf(name, BELAY_MAX_NAME + 1, "id-%016llx", (unsigned long long)id);
        return open_context() ? 0 : err_code();
}

static int find_variable(uint64_t id, char name[BELAY_MAX_NAME + 1], struct region **out)
{
        int rc = name_of(id, name);
        return rc ? rc : registry_find(context, name, out);
}

/* The newest that is intact. Later ones carry over what has not been allocated yet, so it does not
 * matter which of them it is. Verified before it is mapped, unless nothing is to be. */
static int choose_version(const struct version **out)
{
        bool verify = context->options.number[OPT_RESTART] != RESTART_LAZY;
        int rc = restore_choose(context->pool, verify && !verified, out);
        verified = verified || rc == 0;
        return rc;
}

/* The memory is new, and zero; placing data is not the program's writing. */
static int bring_back(const char *name)
{
        struct restore_request q = {.how = context->options.number[OPT_RESTART],
                                    .lazy = &context->lazy[context->lazy_now]};
        const struct version *version;
        struct region *r;
        int rc = registry_find(context, name, &r);
        if (rc || engine_dropped(context->engine, name))
                return rc;
        engine_release(context->engine, r);
        rc = choose_version(&version);
        if (rc == 0)
                rc = restore_region(context->pool, version, r, &q);
        int second = engine_watch(context->engine, r);
        engine_resume(context->engine);
        return rc < 0 ? rc : second;
}

size_t nvsize(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        const struct version *version;
        if (name_of(id, name) || engine_dropped(context->engine, name))
                return 0;
        engine_still(context->engine);
        int rc = choose_version(&version);
        engine_resume(context->engine);
        int64_t at = rc == 0 && version ? version_find(version, name) : -1;
        return at < 0 ? 0 : (size_t)version->regions[at]->desc.bytes;
}

static void *allocate(uint64_t id, const struct belay_desc *shape, int persistent)
{
        char name[BELAY_MAX_NAME + 1];
        struct belay_desc d = *shape;
        if (name_of(id, name))
                return NULL;
        d.name = name;
        d.size = sizeof(d);
        d.flags = BELAY_CHUNK;
        void *p = belay_alloc_desc(context, &d);
        if (!p || !persistent || bring_back(name) == 0)
                return p;
        struct err_kept kept;
        err_keep(&kept);
        (void)belay_free(context, name);
        (void)err_give_back(&kept);
        return NULL;
}

void *nvalloc(uint64_t id, size_t size, int persistent)
{
        struct belay_desc d = {.type = BELAY_U8, .ndims = 1, .dims = {size}};
        void *p = allocate(id, &d, persistent);
        return call_end_pointer(context, p);
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

void *nv2dalloc(uint64_t dim1, uint64_t dim2)
{
        char name[32];
        snprintf(name, sizeof(name), "matrix-%u", matrices + 1);
        uint64_t id = id_of(name);
        void *p = id ? allocate_matrix(id, dim1, dim2, sizeof(double), 1) : NULL;
        matrices += p != NULL;
        return call_end_pointer(context, p);
}

int nvattach(uint64_t id, void *src, size_t size)
{
        char name[BELAY_MAX_NAME + 1];
        int rc = name_of(id, name);
        if (rc == 0)
                rc = belay_attach(context, name, BELAY_U8, size, src);
        return call_end(context, rc);
}

static void *change_size(uint64_t id, void *src, size_t size)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r;
        if (find_variable(id, name, &r))
                return NULL;
        uint64_t row = r->desc.bytes / max_u64(r->desc.dims[0], 1);
        if (row == 0 || size % row) {
                (void)err_set(-EINVAL, "variable '%s': %zu bytes are not a multiple of %llu", name,
                              size, (unsigned long long)row);
                return NULL;
        }
        if (!r->owned)
                return belay_move(context, name, size / row, src) ? NULL : src;
        if (src != r->ptr) {
                (void)err_set(-EINVAL, "variable '%s' is not at the address given", name);
                return NULL;
        }
        return belay_resize(context, name, size / row);
}

void *nvrealloc(uint64_t id, void *src, size_t size)
{
        void *p = change_size(id, src, size);
        return call_end_pointer(context, p);
}

static int delete_variable(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r;
        int rc = find_variable(id, name, &r);
        if (rc)
                return rc;
        rc = engine_drop(context->engine, name);
        if (rc)
                return rc;
        return r->owned ? belay_free(context, name) : belay_detach(context, name);
}

int nvdelete(uint64_t id)
{
        int rc = delete_variable(id);
        return call_end(context, rc);
}

int nvchkptall(void)
{
        int rc = open_context() ? context_checkpoint(context, NULL) : err_code();
        return call_end(context, rc);
}

int nvchkptid(uint64_t id)
{
        char name[BELAY_MAX_NAME + 1];
        struct region *r;
        int rc = find_variable(id, name, &r);
        if (rc == 0)
                rc = context_checkpoint(context, r);
        return call_end(context, rc);
}

/* ---- names without a prefix: a program may have its own, so none of them is called here --------
 */

uint64_t genid(const char *varname)
{
        uint64_t id = id_of(varname);
        (void)call_end(context, id ? 0 : err_code());
        return id;
}

void *nv2dalloc_id(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element, int persistent)
{
        void *p = allocate_matrix(id, dim1, dim2, element, persistent);
        return call_end_pointer(context, p);
}

struct belay *nvcontext(void)
{
        (void)open_context();
        return call_end_pointer(context, context);
}

int nvclose(void)
{
        return call_end(NULL, close_context());
}
