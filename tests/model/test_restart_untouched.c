/* test_restart_untouched.c: a restart that is refused leaves every region as it was, size and place
 * included. */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <stdint.h>

static struct belay *b;

static void open_pool(void)
{
        struct belay_config *c = NULL;
        char path[4200];
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        if (belay_open(c, &b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        belay_config_delete(&c);
}

static uint8_t *alloc_part(uint64_t part, uint64_t whole)
{
        struct belay_desc d = {.size = sizeof(d),
                               .name = "part",
                               .type = BELAY_U8,
                               .ndims = 1,
                               .flags = BELAY_GLOBAL,
                               .dims = {part},
                               .global_dims = {whole}};
        uint8_t *p = belay_alloc_desc(b, &d);
        CHECK(p != NULL);
        return p;
}

/* With BELAY_RESIZE, "first" could shrink, but "part" could not grow: it would not fit its global
 * array. Both change or none. */
static void test_resize_that_fails(void)
{
        struct belay_stats s = {.size = sizeof(s)};
        open_pool();
        CHECK(belay_alloc(b, "first", BELAY_U8, 10) != NULL);
        alloc_part(50, 100);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_free(b, "first"), 0);
        CHECK_EQ(belay_free(b, "part"), 0);
        uint8_t *first = belay_alloc(b, "first", BELAY_U8, 9000);
        CHECK(first != NULL);
        memset(first, 7, 9000);
        uint8_t *part = alloc_part(20, 20);
        memset(part, 8, 20);
        CHECK(belay_restart_version(b, 0, BELAY_RESIZE) < 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(s.region_bytes, 9020);
        CHECK(belay_ptr(b, "first") == first && belay_ptr(b, "part") == part);
        for (int i = 0; i < 9000; i++)
                CHECK_EQ(first[i], 7);
        for (int i = 0; i < 20; i++)
                CHECK_EQ(part[i], 8);
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_resize_that_fails);
        return 0;
}
