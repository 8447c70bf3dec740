/* A region of more than 4 GiB: every size, offset and index on the way must be wider than 32 bits.
 * timeout: 300
 * builds: normal */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <sys/statvfs.h>

int main(void)
{
        test_env_clean();
        const uint64_t count = (UINT64_C(1) << 29) + 12345; /* u64: 4 GiB and a bit */
        struct statvfs fs;
        CHECK_EQ(statvfs(test_dir(), &fs), 0);
        if ((uint64_t)fs.f_bavail * fs.f_frsize < UINT64_C(12) << 30)
                skip("needs 12 GiB of free disk");
        if ((uint64_t)sysconf(_SC_AVPHYS_PAGES) * 4096 < UINT64_C(8) << 30)
                skip("needs 8 GiB of free memory");
        char path[4096];
        struct belay_config *c;
        struct belay *b;
        snprintf(path, sizeof(path), "%s/large", test_dir());
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", "file"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        uint64_t *t = belay_alloc(b, "t", BELAY_U64, count);
        CHECK(t != NULL);
        for (uint64_t i = 0; i < count; i += 512)
                t[i] = i ^ 0x5555;
        t[count - 1] = 7;
        CHECK_EQ(belay_checkpoint(b), 0);
        t[count - 5] = 8;
        CHECK_EQ(belay_checkpoint(b), 0);
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.last_data <= 16384);
        CHECK_EQ(s.last_data + s.last_unchanged, count * 8);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        t = belay_alloc(b, "t", BELAY_U64, count);
        CHECK_EQ(belay_restart(b), 1);
        for (uint64_t i = 0; i < count - 5; i += 512)
                CHECK_EQ(t[i], i ^ 0x5555);
        CHECK_EQ(t[count - 5], 8);
        CHECK_EQ(t[count - 1], 7);
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&c);
        return 0;
}
