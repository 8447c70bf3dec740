/* A hash that takes every block for unchanged is found out by the tests of content. */
#include "base/base.h"
#include "content.h"
#include "stress.h"

struct hash128 __real_hash_block(uint32_t kind, const void *data, size_t bytes);
struct hash128 __wrap_hash_block(uint32_t kind, const void *data, size_t bytes);

static bool planted;

/* The linker puts this in front of the library's own. */
struct hash128 __wrap_hash_block(uint32_t kind, const void *data, size_t bytes)
{
        return planted ? (struct hash128){1, 2} : __real_hash_block(kind, data, bytes);
}

int main(void)
{
        static const char *const options[] = {"policy=sync", "policy=adaptive tracker=auto"};
        for (int i = 0; i < 2; i++) {
                planted = false;
                CHECK_EQ(content_run(options[i]).wrong, 0);
                planted = true;
                unsigned wrong = content_run(options[i]).wrong;
                printf("  %s: %u wrong\n", options[i], wrong);
                CHECK(wrong >= 3);
        }
        return 0;
}
