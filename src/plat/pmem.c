/* pmem.c: persistent memory through libpmem2, loaded at run time so that the library starts without
 * it.
 *
 * libpmem2 is asked once per pool, when that is opened: is this file persistent memory, and by
 * which functions does this processor make stores durable? The mapping is our own, with MAP_SYNC.
 * libpmem2 allocates when it maps, and a growing pool is mapped again by the flusher, which must
 * not: a program thread may hold malloc's lock and wait for it. The two functions that are kept
 * neither allocate nor lock. */
#include "plat/plat_int.h"
#include <errno.h>
#include <sys/mman.h>

#if BELAY_HAVE_LIBPMEM2
#include <dlfcn.h>
#include <libpmem2.h>
#include <pthread.h>

static struct {
        int (*source_from_fd)(struct pmem2_source **source, int fd);
        int (*source_delete)(struct pmem2_source **source);
        int (*config_new)(struct pmem2_config **config);
        int (*config_delete)(struct pmem2_config **config);
        int (*config_set_length)(struct pmem2_config *config, size_t bytes);
        int (*config_set_granularity)(struct pmem2_config *config, enum pmem2_granularity coarsest);
        int (*map_new)(struct pmem2_map **map, const struct pmem2_config *config,
                       const struct pmem2_source *source);
        int (*map_delete)(struct pmem2_map **map);
        pmem2_memcpy_fn (*get_memcpy)(struct pmem2_map *map);
        pmem2_drain_fn (*get_drain)(struct pmem2_map *map);
} pmem2;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static int loaded = -ENOSYS;

static void load(void)
{
        const struct {
                const char *name;
                void *function;
        } wanted[] = {
                {"pmem2_source_from_fd", &pmem2.source_from_fd},
                {"pmem2_source_delete", &pmem2.source_delete},
                {"pmem2_config_new", &pmem2.config_new},
                {"pmem2_config_delete", &pmem2.config_delete},
                {"pmem2_config_set_length", &pmem2.config_set_length},
                {"pmem2_config_set_required_store_granularity", &pmem2.config_set_granularity},
                {"pmem2_map_new", &pmem2.map_new},
                {"pmem2_map_delete", &pmem2.map_delete},
                {"pmem2_get_memcpy_fn", &pmem2.get_memcpy},
                {"pmem2_get_drain_fn", &pmem2.get_drain},
        };
        void *library = dlopen("libpmem2.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return;
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
                void *symbol = dlsym(library, wanted[i].name);
                if (!symbol) {
                        (void)dlclose(library);
                        return;
                }
                memcpy(wanted[i].function, &symbol, sizeof(symbol)); /* as in ring.c */
        }
        loaded = 0;
}

/* The functions are those of the processor, not of the mapping: they depend only on whether it
 * flushes its caches by itself when the power fails. So they outlive the page that is mapped here.
 */
static int find_functions(int fd, struct plat_pmem *out)
{
        struct pmem2_source *source = NULL;
        struct pmem2_config *config = NULL;
        struct pmem2_map *map = NULL;
        pthread_once(&load_once, load);
        if (loaded)
                return loaded;
        int rc = pmem2.source_from_fd(&source, fd);
        if (rc == 0)
                rc = pmem2.config_new(&config);
        if (rc == 0)
                rc = pmem2.config_set_granularity(config, PMEM2_GRANULARITY_CACHE_LINE);
        if (rc == 0)
                rc = pmem2.config_set_length(config, PLAT_PAGE);
        if (rc == 0)
                rc = pmem2.map_new(&map, config, source);
        if (rc == 0)
                *out = (struct plat_pmem){pmem2.get_memcpy(map), pmem2.get_drain(map)};
        if (map && pmem2.map_delete(&map) && rc == 0)
                rc = -EIO;
        if (config)
                (void)pmem2.config_delete(&config);
        if (source)
                (void)pmem2.source_delete(&source);
        return rc == 0 || rc == -ENOMEM ? rc : -EOPNOTSUPP;
}

#else

#define PMEM2_F_MEM_NODRAIN 0u

static int find_functions(int fd, struct plat_pmem *out)
{
        (void)fd;
        (void)out;
        return -ENOSYS;
}

#endif

bool pmem_built_in(void)
{
        return BELAY_HAVE_LIBPMEM2;
}

int pmem_system_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out)
{
        /* Refused at once by every file system that is not persistent memory, so only there is
         * libpmem2 loaded. */
        void *map =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        if (map == MAP_FAILED)
                return -errno;
        int rc = find_functions(fd, pmem);
        if (rc) {
                (void)munmap(map, bytes);
                return rc;
        }
        (void)madvise(map, bytes, MADV_DONTFORK); /* as in system.c */
        *out = map;
        return 0;
}

void pmem_system_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes)
{
        (void)pmem->copy(to, from, bytes, PMEM2_F_MEM_NODRAIN);
}

void pmem_system_drain(const struct plat_pmem *pmem)
{
        pmem->drain();
}
