/* model_regions.c: regions come, change and go. */
#include "model.h"
#include <errno.h>

uint64_t model_shape_bytes(const struct model_shape *s)
{
        uint64_t bytes = s->element_bytes;
        for (uint32_t i = 0; i < s->ndims; i++)
                bytes *= s->dims[i];
        return bytes;
}

/* Sizes around the edges that matter: nothing, one element, a block, a slot, a leaf, a gather
 * buffer. */
static uint64_t some_bytes(struct model *m)
{
        switch (model_below(m, 10)) {
        case 0:
                return 0;
        case 1:
                return 1 + model_below(m, 200);
        case 2:
                return 4000 + model_below(m, 200);
        case 3:
                return (128u << 10) - 256 + model_below(m, 2048);
        case 4:
                return (1u << 20) - 4096 + model_below(m, 65536);
        default:
                return 1 + model_below(m, 64u << 10);
        }
}

static struct model_shape some_shape(struct model *m)
{
        static const uint32_t types[] = {BELAY_RAW, BELAY_U8,  BELAY_I16,
                                         BELAY_F32, BELAY_F64, BELAY_C128};
        struct model_shape s = {.type = types[model_below(m, ARRAY_LEN(types))]};
        s.element_bytes =
                s.type == BELAY_RAW ? 1 + (uint32_t)model_below(m, 40) : type_bytes(s.type);
        s.block_bytes = 128u << model_below(m, 10);
        s.ndims = 1 + (uint32_t)model_below(m, 2);
        uint64_t elements = some_bytes(m) / s.element_bytes;
        s.dims[1] = s.ndims == 2 ? 1 + model_below(m, 9) : 0;
        s.dims[0] = s.ndims == 2 ? elements / s.dims[1] : elements;
        return s;
}

static void *must_alloc(uint64_t bytes)
{
        void *p = calloc(1, bytes + 1);
        CHECK(p != NULL);
        return p;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void attach_memory(struct model_region *r, uint64_t skew)
{
        r->block = must_alloc(r->bytes + 2 * MODEL_GUARD + 64);
        r->ptr = r->block + MODEL_GUARD + skew % 64;
        memset(r->ptr - MODEL_GUARD, 0xdb, MODEL_GUARD);
        memset(r->ptr + r->bytes, 0xdb, MODEL_GUARD);
}

void model_free_memory(struct model_region *r)
{
        free(r->block);
        free(r->mirror);
        r->block = NULL;
        r->mirror = NULL;
}

static void check_guards(const struct model *m, const struct model_region *r)
{
        for (unsigned i = 0; !r->owned && i < MODEL_GUARD; i++)
                if (r->ptr[(int)i - (int)MODEL_GUARD] != 0xdb || r->ptr[r->bytes + i] != 0xdb)
                        MODEL_FAIL(m, "memory around '%s' was written", r->name);
}

void model_compare(const struct model *m)
{
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                const struct model_region *r = &m->regions[i];
                if (belay_ptr(m->b, r->name) != (r->registered ? r->ptr : NULL))
                        MODEL_FAIL(m, "'%s' is not where it was", r->name);
                if (!r->registered)
                        continue;
                size_t at = check_first_difference(r->ptr, r->mirror, r->bytes);
                if (at != r->bytes)
                        MODEL_FAIL(m, "'%s' (%llu bytes) differs at byte %zu", r->name,
                                   (unsigned long long)r->bytes, at);
                check_guards(m, r);
        }
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct belay_desc describe(const struct model_region *r)
{
        return (struct belay_desc){.size = sizeof(struct belay_desc),
                                   .name = r->name,
                                   .type = r->shape.type,
                                   .element_bytes = r->shape.element_bytes,
                                   .ndims = r->shape.ndims,
                                   .block_bytes = r->shape.block_bytes,
                                   .dims = {r->shape.dims[0], r->shape.dims[1]}};
}

void model_shape(struct model *m, struct model_region *r)
{
        if (r->shape.element_bytes == 0 || model_below(m, 2))
                r->shape = some_shape(m);
}

void model_register(struct model *m, struct model_region *r)
{
        r->bytes = model_shape_bytes(&r->shape);
        r->owned = model_below(m, 2);
        struct belay_desc d = describe(r);
        if (r->owned) {
                r->ptr = belay_alloc_desc(m->b, &d);
                if (!r->ptr)
                        MODEL_FAIL(m, "alloc of '%s'", r->name);
        } else {
                attach_memory(r, model_below(m, 64));
                model_result(m, belay_attach_desc(m->b, &d, r->ptr), 0, "attach");
        }
        r->mirror = must_alloc(r->bytes); /* calloc: new memory is zero on both sides */
        r->registered = true;
        if (model_below(m, 4))
                model_write(m, r);
}

void model_forget(struct model *m, struct model_region *r)
{
        int rc = r->owned ? belay_free(m->b, r->name) : belay_detach(m->b, r->name);
        model_result(m, rc, 0, r->owned ? "free" : "detach");
        if (!r->owned) {
                CHECK_MEM(r->ptr, r->mirror, r->bytes);
                check_guards(m, r);
        }
        r->registered = false;
        model_free_memory(r);
}

static void resize_mirror(struct model_region *r, uint64_t bytes)
{
        uint8_t *next = must_alloc(bytes);
        memcpy(next, r->mirror, min_u64(bytes, r->bytes));
        free(r->mirror);
        r->mirror = next;
        r->bytes = bytes;
}

static void move(struct model *m, struct model_region *r, uint64_t count)
{
        uint8_t *old = r->block;
        r->shape.dims[0] = count;
        resize_mirror(r, model_shape_bytes(&r->shape));
        attach_memory(r, model_below(m, 64));
        memcpy(r->ptr, r->mirror, r->bytes);
        model_result(m, belay_move(m->b, r->name, count, r->ptr), 0, "move");
        memset(old, 0xee,
               1); /* the library must not look there any more; a sanitizer sees it if it does */
        free(old);
}

void model_reshape(struct model *m, struct model_region *r)
{
        uint64_t row = r->shape.element_bytes * (r->shape.ndims == 2 ? r->shape.dims[1] : 1);
        uint64_t count = model_below(m, 4) == 0 ? r->shape.dims[0] : some_bytes(m) / row;
        if (!r->owned) {
                move(m, r, count);
                return;
        }
        uint8_t *p = belay_resize(m->b, r->name, count);
        if (!p)
                MODEL_FAIL(m, "resize of '%s'", r->name);
        r->ptr = p;
        r->shape.dims[0] = count;
        resize_mirror(r, model_shape_bytes(&r->shape));
        model_compare(m);
}

void model_adopt(struct model *m, struct model_region *r, const struct model_stored *s)
{
        r->ptr = belay_ptr(m->b, r->name);
        CHECK(r->ptr != NULL);
        memcpy(r->shape.dims, s->shape.dims, sizeof(r->shape.dims));
        resize_mirror(r, s->bytes);
}

/* A range of random bytes, one byte, or the same bytes again (which must not be written as new). */
void model_write(struct model *m, struct model_region *r)
{
        if (r->bytes == 0)
                return;
        uint64_t begin = model_below(m, r->bytes);
        uint64_t length =
                model_below(m, 3) ? 1 + model_below(m, 300) : 1 + model_below(m, r->bytes);
        length = min_u64(length, r->bytes - begin);
        uint64_t kind = model_below(m, 4);
        struct test_random noise = {test_random_next(&m->random)};
        for (uint64_t i = 0; kind && i < length; i++)
                r->mirror[begin + i] = (uint8_t)(kind == 1 ? 7 : test_random_next(&noise));
        memcpy(r->ptr + begin, r->mirror + begin, length);
}

/* Mistakes: each is refused and changes nothing. */
void model_misuse(struct model *m)
{
        struct model_region *r = &m->regions[model_below(m, MODEL_REGIONS)];
        uint8_t byte = 0;
        if (!r->registered) {
                model_result(m, belay_detach(m->b, r->name), -ENOENT, "detach of nothing");
                model_result(m, belay_free(m->b, r->name), -ENOENT, "free of nothing");
                CHECK(belay_resize(m->b, r->name, 5) == NULL && belay_error_code() == -ENOENT);
                return;
        }
        struct belay_desc d = describe(r);
        model_result(m, belay_attach_desc(m->b, &d, &byte), -EEXIST, "second attach");
        CHECK(belay_alloc_desc(m->b, &d) == NULL && belay_error_code() == -EEXIST);
        if (r->owned) {
                model_result(m, belay_detach(m->b, r->name), -EINVAL, "detach of allocated memory");
                model_result(m, belay_move(m->b, r->name, 1, &byte), -EINVAL,
                             "move of allocated memory");
                CHECK(belay_resize(m->b, r->name, UINT64_MAX) == NULL);
        } else {
                model_result(m, belay_free(m->b, r->name), -EINVAL, "free of attached memory");
                CHECK(belay_resize(m->b, r->name, 1) == NULL && belay_error_code() == -EINVAL);
        }
        model_result(m, belay_restart_version(m->b, m->next_version, 0), -ENOENT,
                     "restart of no version");
        model_result(m, belay_restart_version(m->b, 0, 1u << 20), -EINVAL, "unknown flag");
        model_compare(m);
}
