/* prog_write_golden.c: lets the library write a content set as a pool, for make_golden.py.
 *
 *      compat_write_golden CONTENT.TXT SET POOL
 *
 * The pool's id and times are fixed, so that the same library writes the same bytes. */
#include "check.h"
#include "golden_content.h"
#include "plat/plat.h"
#include "test_env.h"

static int fixed_random(void *buf, size_t bytes)
{
        memset(buf, 'L', bytes);
        return 0;
}

static uint64_t fixed_time(void)
{
        return UINT64_C(1700000000000000000);
}

static void set(struct belay_config *c, const char *key, const char *value)
{
        if (belay_config_set(c, key, value))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
}

static void write_version(struct belay *b, const struct golden_version *v)
{
        for (uint32_t i = 0; i < v->count; i++)
                if (belay_attach_desc(b, &v->regions[i].desc, v->regions[i].data))
                        check_failed(__FILE__, __LINE__, "%s", belay_error());
        if (belay_checkpoint(b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        CHECK_EQ(belay_version(b), v->number);
        for (uint32_t i = 0; i < v->count; i++)
                CHECK_EQ(belay_detach(b, v->regions[i].name), 0);
}

int main(int argc, char **argv)
{
        static struct golden_set content;
        struct plat_calls calls = plat_system;
        struct belay_config *c = NULL;
        struct belay *b = NULL;
        test_env_clean();
        if (argc != 4) {
                fprintf(stderr, "usage: compat_write_golden CONTENT.TXT SET POOL\n");
                return 2;
        }
        calls.random = fixed_random;
        calls.wall_ns = fixed_time;
        plat = &calls;
        golden_load(argv[1], argv[2], &content);
        CHECK_EQ(belay_config_new(&c), 0);
        set(c, "pool", argv[3]);
        set(c, "versions", "8");
        set(c, "media", "file");
        /* The file grows to its limit at once: a small limit makes a small file. */
        set(c, "limit", "80KiB");
        if (belay_open(c, &b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        for (uint32_t i = 0; i < content.count; i++)
                write_version(b, &content.versions[i]);
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&c);
        golden_unload(&content);
        return 0;
}
