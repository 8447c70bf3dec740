/* prog_extract.c: what the library makes of a pool, for comparison with another reader.
 *
 *      compat_extract POOL ls                     a line "version N" with " damaged" or "
 * unreadable" behind it, then its regions, "N NAME" compat_extract POOL REGION VERSION FILE    the
 * bytes of a region
 *
 * Exit status: 0 = done, 1 = refused or damaged, with the reason on standard error. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include "read_once.h"

static void list(struct pool *p)
{
        for (uint32_t i = 0; i < pool_version_count(p); i++) {
                const struct version *v = pool_version(p, i);
                printf("version %llu%s\n", (unsigned long long)v->number,
                       v->unreadable                ? " unreadable"
                       : v->flags & VERSION_DAMAGED ? " damaged"
                                                    : "");
                for (uint32_t r = 0; r < v->region_count; r++)
                        printf("%llu %s\n", (unsigned long long)v->number,
                               v->regions[r]->desc.name);
        }
}

static int write_block(void *file, uint64_t block, const void *data, uint32_t bytes)
{
        (void)block;
        if (!data)
                return BELAY_E_DATA;
        return fwrite(data, 1, bytes, file) == bytes ? 0 : -1;
}

static int extract(struct pool *p, const char *region, uint64_t number, const char *output)
{
        const struct version *v = pool_find_version(p, number);
        int64_t at = v && !v->unreadable ? version_find(v, region) : -1;
        if (at < 0) {
                fprintf(stderr, "no such region, or not readable\n");
                return 1;
        }
        FILE *f = fopen(output, "we");
        CHECK(f != NULL);
        int rc = read_once(p, v, (uint32_t)at, NULL, write_block, f);
        CHECK_EQ(fclose(f), 0);
        if (rc)
                fprintf(stderr, "%s\n", err_text());
        return rc != 0;
}

int main(int argc, char **argv)
{
        struct budget budget = {.limit = UINT64_C(64) << 20};
        struct pool *p = NULL;
        int status = 0;
        test_env_clean();
        if (argc != 3 && argc != 5) {
                fprintf(stderr, "usage: compat_extract POOL ls | POOL REGION VERSION FILE\n");
                return 2;
        }
        struct pool_options o = {
                .path = argv[1], .readonly = true, .versions = 2, .budget = &budget};
        if (pool_open(&o, &p)) {
                fprintf(stderr, "%s\n", err_text());
                return 1;
        }
        if (argc == 3)
                list(p);
        else
                status = extract(p, argv[2], strtoull(argv[3], NULL, 10), argv[4]);
        CHECK_EQ(pool_close(&p), 0);
        return status;
}
