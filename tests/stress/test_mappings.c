/* vm.max_map_count is reached: the kernel splits no mapping any further, so units can be neither
 * protected nor opened one by one. Every version is exact all the same, and the program never
 * sees a fault. */
#include "stress.h"
#include <sys/mman.h>

#define BYTES (8u << 20)
#define UNIT  (16u << 10)

static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};

static uint8_t *pages; /* of alternating protection, a mapping each */
static uint64_t pages_used;

/* Takes mappings until the kernel refuses; then gives back `spare`. */
static void exhaust(uint64_t spare)
{
        while (mprotect(pages + pages_used * 4096, 4096, PROT_READ) == 0)
                pages_used += 2;
        pages_used -= 2 * spare;
        CHECK_EQ(mprotect(pages + pages_used * 4096, 2 * spare * 4096, PROT_NONE), 0);
}

static void relieve(void)
{
        pages_used -= 2000;
        CHECK_EQ(mprotect(pages + pages_used * 4096, 2000 * 4096, PROT_NONE), 0);
}

static void prepare(void)
{
        FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
        unsigned long limit = 0;
        if (!f || fscanf(f, "%lu", &limit) != 1 || limit > 300000)
                skip("vm.max_map_count is not known or too high to be reached");
        fclose(f);
        pages = mmap(NULL, (limit + 2) * 4096, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(pages != MAP_FAILED);
        pages_used = 1;
}

/* Writes to all units in an order without neighbours; every third one if `some`. */
static void scatter(uint8_t *m, uint64_t round, bool some)
{
        uint64_t units = BYTES / UNIT;
        for (uint64_t i = 0; i < units; i++) {
                uint64_t u = i * 197 % units;
                if (!some || u % 3 == round % 3)
                        stress_poke(m, u * UNIT + 100 + round, (uint8_t)(i + round + 1));
        }
}

static void run(const char *tracker, const char *policy, uint64_t spare)
{
        char options[256];
        const char *path = stress_pool("mappings");
        snprintf(options, sizeof(options),
                 "tracker=%s policy=%s unit=16KiB copy_buffer=64KiB rate=256MiB media=file",
                 tracker, policy);
        struct belay *b = stress_open(path, options);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
        CHECK(m != NULL);
        stress_fill(m, BYTES, spare);
        uint8_t *frozen = malloc(BYTES);
        /* The first versions with room for mappings: the pool has its size and its tables then. */
        for (uint64_t round = 0; round < 4; round++) {
                scatter(m, round, false);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
        }
        exhaust(spare);
        for (uint64_t round = 0; round < 5; round++) {
                scatter(m, round, round > 2);
                memcpy(frozen, m, BYTES);
                int rc = belay_checkpoint(b);
                if (rc)
                        check_failed(__FILE__, __LINE__, "%s %s: %s", tracker, policy,
                                     belay_error());
                scatter(m, round + 10, round % 2 == 0);
                if (belay_wait(b, 0, BELAY_FOREVER))
                        check_failed(__FILE__, __LINE__, "%s %s: %s", tracker, policy,
                                     belay_error());
                relieve();
                stress_exact(b, path, "x", frozen, BYTES);
                exhaust(spare);
        }
        relieve();
        stress_close(&b);
        free(frozen);
}

int main(void)
{
        static const uint64_t spares[] = {6, 40};
        prepare();
        for (int t = 0; t < 4; t++)
                for (int k = 0; k < 2; k++) {
                        printf("%s, %d mappings left\n", trackers[t], (int)spares[k]);
                        fflush(stdout);
                        run(trackers[t], "adaptive", spares[k]);
                        run(trackers[t], k ? "async" : "sync", spares[k]);
                }
        return 0;
}
