/* Options, names, hashes, error text. */
#include "base/base_int.h"
#include "check.h"
#include <errno.h>

static void test_option_order(void)
{
        struct options o;
        char value[64];
        options_init(&o);
        CHECK_EQ(o.number[OPT_VERSIONS], 2);
        CHECK_EQ(o.number[OPT_BLOCK], 16384);
        CHECK_STR(o.pool, "belay.pool");
        static const char text[] = "# comment\n\n versions = 3 \nblock=64KiB\npool = a b=c\n";
        CHECK_EQ(options_set_text(&o, text, sizeof(text) - 1, "f"), 0);
        CHECK_STR(o.pool, "a b=c");
        CHECK_EQ(setenv("BELAY_VERSIONS", "4", 1), 0);
        CHECK_EQ(options_set_environment(&o), 0);
        CHECK_EQ(o.number[OPT_VERSIONS], 4);
        CHECK_EQ(o.number[OPT_BLOCK], 65536);
        /* A weaker source does not override a stronger one. */
        CHECK_EQ(options_set(&o, "versions", "9", SOURCE_FILE), 0);
        CHECK_EQ(o.number[OPT_VERSIONS], 4);
        CHECK_EQ(options_set(&o, "versions", "5", SOURCE_SETTER), 0);
        CHECK_EQ(o.number[OPT_VERSIONS], 5);
        CHECK_EQ(options_get(&o, "block", value, sizeof(value)), 0);
        CHECK_STR(value, "64KiB");
        CHECK_EQ(options_get(&o, "media", value, sizeof(value)), 0);
        CHECK_STR(value, "auto");
        CHECK_EQ(options_get(&o, "block", value, 3), -ENOSPC);
        CHECK_EQ(unsetenv("BELAY_VERSIONS"), 0);
}

static void refused(const char *key, const char *value, const char *says)
{
        struct options o;
        struct options before;
        options_init(&o);
        before = o;
        CHECK_EQ(options_set(&o, key, value, SOURCE_SETTER), -EINVAL);
        CHECK_HAS(err_text(), says);
        CHECK_MEM(&o, &before, sizeof(o));
}

/* A suggestion is made for a misspelling, and not for a word that has nothing to do with it. */
static void test_similar_words(void)
{
        static const char *const words[] = {"ls", "show", "verify", "--versions", "--version-a"};
        static const struct {
                const char *word, *meant;
        } cases[] = {{"foo", NULL},
                     {"", NULL},
                     {"-", NULL},
                     {"x", NULL},
                     {"sl", NULL},
                     {"lst", "ls"},
                     {"hsow", "show"},
                     {"shows", "show"},
                     {"verfiy", "verify"},
                     {"very", "verify"},
                     {"vrfy", "verify"},
                     {"shovel", NULL},
                     {"--versoin", "--versions"},
                     {"version-b", "--version-a"},
                     {"-versions", "--versions"}};
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                const char *got = similar_word(cases[i].word, words, ARRAY_LEN(words));
                CHECK_STR(got ? got : "(none)", cases[i].meant ? cases[i].meant : "(none)");
        }
        char longest[300];
        memset(longest, 'v', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        CHECK(similar_word(longest, words, ARRAY_LEN(words)) == NULL);
        const char *const others[] = {longest, "show"};
        CHECK_STR(similar_word("showe", others, ARRAY_LEN(others)), "show");
}

static void test_option_refusal(void)
{
        refused("version", "3", "did you mean 'versions'?");
        refused("polo", "x", "did you mean 'pool'?");
        refused("quux", "x", "unknown option 'quux'; `belay options` lists them");
        refused("versions", "0", "from 1 to 63");
        refused("versions", "-1", "from 1 to 63");
        refused("versions", "3x", "from 1 to 63");
        refused("versions", "3B", "from 1 to 63");
        refused("versions", " 3", "from 1 to 63");
        refused("versions", "", "from 1 to 63");
        refused("interval", "20000000m", "up to 31 years");
        refused("interval", "0.0000001ms", "a time such as");
        refused("overhead", "100.000000001", "from 0 to 100");
        refused("requests", "YES", "no|yes");
        refused("requests", "no|yes", "no|yes");
        refused("requests", "", "no|yes");
        refused("block", "100", "power of two");
        refused("block", "2MiB", "power of two");
        refused("limit", "18446744073709551616", "size");
        refused("limit", "99999999T", "size");
        refused("media", "tape", "auto|file|mapped");
        refused("pool", "", "1 to 4095 bytes");
        struct options o;
        options_init(&o);
        CHECK_EQ(options_set_text(&o, "versions = 3\nnonsense\n", 22, "my.conf"), -EINVAL);
        CHECK_HAS(err_text(), "my.conf, line 2");
        CHECK_EQ(setenv("BELAY_VERSIOS", "4", 1), 0);
        CHECK_EQ(options_set_environment(&o), -EINVAL);
        CHECK_HAS(err_text(), "BELAY_VERSIOS");
        CHECK_HAS(err_text(), "did you mean 'versions'?");
        CHECK_EQ(unsetenv("BELAY_VERSIOS"), 0);
}

/* As editors leave it: a byte order mark, carriage returns, a key twice, no newline at the end. */
static void test_option_file(void)
{
        static const char text[] = "\xef\xbb\xbfversions = 3\r\n\tblock\t=\t64KiB \r\nversions=5";
        struct options o;
        options_init(&o);
        CHECK_EQ(options_set_text(&o, text, sizeof(text) - 1, "f"), 0);
        CHECK_EQ(o.number[OPT_VERSIONS], 5);
        CHECK_EQ(o.number[OPT_BLOCK], 65536);
        static const char late[] = "versions = 3\n\xef\xbb\xbfversions = 4\n";
        CHECK_EQ(options_set_text(&o, late, sizeof(late) - 1, "f"), -EINVAL);
        CHECK_EQ(options_set_text(&o, "\xef\xbb\xbf", 3, "f"), 0);
        CHECK_EQ(options_set_text(&o, "\xef\xbb", 2, "f"), -EINVAL);
}

static void test_times(void)
{
        static const struct {
                const char *text;
                uint64_t ns;
        } good[] = {{"0", 0},
                    {"90", UINT64_C(90000000000)},
                    {"0.5s", 500000000},
                    {"3ms", 3000000},
                    {"0.25ms", 250000},
                    {"0.000001ms", 1},
                    {"1.5m", UINT64_C(90000000000)},
                    {"2h", UINT64_C(7200000000000)},
                    {"20d", UINT64_C(1728000000000000)}};
        /* What is finer than a nanosecond is not taken for nothing. */
        static const char *const bad[] = {"",    "s",   "5w",  "5 s",         "5sm",        "-1s",
                                          "1.s", "nan", "1e3", "0.0000001ms", "1.0000001ms"};
        uint64_t ns = 7;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                CHECK_EQ(time_parse(bad[i], &ns), -EINVAL);
        CHECK_EQ(time_parse("99999999999999", &ns), -ERANGE);
        CHECK_EQ(time_parse("9999999999d", &ns), -ERANGE);
        CHECK_EQ(ns, 7);
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                CHECK_EQ(time_parse(good[i].text, &ns), 0);
                CHECK_EQ(ns, good[i].ns);
        }
}

static void test_names(void)
{
        char longest[BELAY_MAX_NAME + 2];
        memset(longest, 'a', sizeof(longest));
        longest[BELAY_MAX_NAME + 1] = '\0';
        CHECK_EQ(name_check(longest), -ENAMETOOLONG);
        longest[BELAY_MAX_NAME] = '\0';
        CHECK_EQ(name_check(longest), 0);
        CHECK_EQ(name_check("grid/ρ ü 温度 '\""), 0);
        CHECK_EQ(name_check(""), -EINVAL);
        CHECK_EQ(name_check(NULL), -EINVAL);
        CHECK_EQ(name_check("a\nb"), -EINVAL);
        CHECK_EQ(name_check("a\x7f"), -EINVAL);
        CHECK_EQ(name_check("a\xc2\x9b"
                            "31m"),
                 -EINVAL);
        CHECK_EQ(name_check("a\xc2\xa0"), 0);
        char safe[16];
        CHECK_STR(printable("\xc2\x9b"
                            "31m",
                            safe, sizeof(safe)),
                  "??31m");
        CHECK_EQ(name_check("\xc0\xaf"), -EINVAL);
        CHECK_EQ(name_check("\xed\xa0\x80"), -EINVAL);
        CHECK_EQ(name_check("\xf5\x80\x80\x80"), -EINVAL);
        CHECK_EQ(name_check("ends\xe2\x82"), -EINVAL);
}

static void test_name_index(void)
{
        struct name_entry slots[] = {{1, 1}, {5, 0}, {5, 2}, {9, 3}};
        CHECK_EQ(names_find(slots, ARRAY_LEN(slots), 0), 0);
        CHECK_EQ(names_find(slots, ARRAY_LEN(slots), 5), 1);
        CHECK_EQ(names_find(slots, ARRAY_LEN(slots), 6), 3);
        CHECK_EQ(names_find(slots, ARRAY_LEN(slots), 10), 4);
}

/* Names come and go in a table that is nearly full, with few different keys. */
static void test_name_table(void)
{
        enum { CAPACITY = 64, NAMES = 60 };
        struct name_entry slots[CAPACITY];
        bool there[NAMES] = {false};
        uint64_t place[NAMES]; /* the position it was put with, or moved to */
        uint64_t seed = 1;
        names_clear(slots, CAPACITY);
        for (int step = 0; step < 20000; step++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                uint64_t i = (seed >> 33) % NAMES;
                uint64_t key = i % 7 * 31;
                if (!there[i]) {
                        place[i] = i;
                        names_put(slots, CAPACITY, key, place[i]);
                } else if ((seed >> 60) < 4) {
                        names_move(slots, CAPACITY, key, place[i], place[i] + 1000);
                        place[i] += 1000;
                } else {
                        names_take(slots, CAPACITY, key, place[i]);
                }
                there[i] = !there[i] || (seed >> 60) < 4;
                for (uint64_t k = 0; k < 7; k++) {
                        size_t at = 0;
                        uint64_t found = 0;
                        uint64_t expected = 0;
                        uint64_t p;
                        while ((p = names_next(slots, CAPACITY, k * 31, &at)) != NO_NAME)
                                found += p * p + 1;
                        for (uint64_t n = k; n < NAMES; n += 7)
                                expected += there[n] ? place[n] * place[n] + 1 : 0;
                        CHECK_EQ(found, expected);
                }
        }
}

/* All variants this CPU can run give one value: pools move between machines. */
static void test_hash_variants(void)
{
        static uint8_t data[70000];
        for (size_t i = 0; i < sizeof(data); i++)
                data[i] = (uint8_t)(i * 2654435761u >> 13);
        static const size_t lengths[] = {32, 33, 64, 128, 240, 241, 1024, 4096, 16384, 65537};
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
                struct hash128 h = xxh3_bytes_base(data, lengths[i]);
                struct hash128 o = xxh3_object_base(data, lengths[i]);
                CHECK(hash_equal(hash_bytes(data, lengths[i]), h));
                CHECK(hash_equal(hash_object(data, lengths[i]), o));
#if defined(__x86_64__)
                if (__builtin_cpu_supports("avx2"))
                        CHECK(hash_equal(xxh3_bytes_avx2(data, lengths[i]), h));
                if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
                        CHECK(hash_equal(xxh3_bytes_avx512(data, lengths[i]), h));
#endif
                data[lengths[i] - 1] ^= 1;
                CHECK(!hash_equal(hash_bytes(data, lengths[i]), h));
                data[lengths[i] - 1] ^= 1;
        }
        /* Bytes 16 … 31 of an object do not count. */
        struct hash128 before = hash_object(data, 100);
        data[16] ^= 0xff;
        data[31] ^= 0xff;
        CHECK(hash_equal(hash_object(data, 100), before));
        data[32] ^= 1;
        CHECK(!hash_equal(hash_object(data, 100), before));
}

static bool digest_is(uint32_t kind, const char *text, const char *hex)
{
        struct hash128 h = hash_block(kind, text, strlen(text));
        uint8_t bytes[16];
        char shown[33];
        put_u64(bytes, h.lo);
        put_u64(bytes + 8, h.hi);
        for (int i = 0; i < 16; i++)
                snprintf(shown + 2 * i, 3, "%02x", bytes[i]);
        return strcmp(shown, hex) == 0;
}

/* The examples of RFC 1321, and the check value of CRC-32. */
static void test_hash_kinds(void)
{
        CHECK(digest_is(HASH_MD5, "", "d41d8cd98f00b204e9800998ecf8427e"));
        CHECK(digest_is(HASH_MD5, "abc", "900150983cd24fb0d6963f7d28e17f72"));
        CHECK(digest_is(HASH_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"));
        CHECK(digest_is(HASH_MD5, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                        "d174ab98d277d9f5a5611c2c9f419d9f"));
        CHECK(digest_is(HASH_MD5,
                        "1234567890123456789012345678901234567890123456789012345678901234567890123"
                        "4567890",
                        "57edf4a22be3c955ac49da2e2107b67a"));
        CHECK(digest_is(HASH_CRC32, "123456789", "2639f4cb000000000000000000000000"));
        CHECK(digest_is(HASH_CRC32, "The quick brown fox jumps over the lazy dog",
                        "39a34f41000000000000000000000000"));
        CHECK(digest_is(HASH_NONE, "abc", "00000000000000000000000000000000"));
        CHECK(hash_equal(hash_block(HASH_XXH3, "abc", 3), hash_bytes("abc", 3)));
        CHECK(strcmp(hash_kind_name(HASH_MD5), "md5") == 0);
        CHECK(strcmp(hash_kind_name(99), "unknown") == 0);
}

#if defined(__x86_64__)
/* The register state in use (XGETBV with ECX = 1): bit 2 is set while an upper half is not zero. */
static bool wide_registers_dirty(void)
{
        uint32_t low;
        uint32_t high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
        return (low & 4) != 0;
}

/* Plain assembly: with a target attribute the compiler would clean up behind it. */
static void dirty_wide_registers(void)
{
        __asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
}

/* A hash that leaves wide registers dirty would slow the program's own code down from then on. */
static void test_hash_leaves_no_wide_state(void)
{
        static uint8_t data[65536];
        uint32_t a = 0xd;
        uint32_t b;
        uint32_t c = 1;
        uint32_t d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        const char *sanitized = getenv("TEST_SANITIZED");
        if (!__builtin_cpu_supports("avx2") || !(a & 4) || (sanitized && sanitized[0] == '1'))
                return; /* instrumented code has wide registers of its own */
        dirty_wide_registers();
        bool visible = wide_registers_dirty();
        __asm__ volatile("vzeroupper");
        if (!visible || wide_registers_dirty())
                return; /* this machine does not report it */
        (void)hash_bytes(data, sizeof(data));
        CHECK(!wide_registers_dirty());
        (void)hash_object(data, sizeof(data));
        CHECK(!wide_registers_dirty());
        (void)hash_name(
                "a name that is longer than a wide register, so that vectors may be used for it: "
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890"
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890"
                "1234567890");
        CHECK(!wide_registers_dirty());
}
#endif

static void test_error_text(void)
{
        CHECK_EQ(err_set(-EIO, "inner %d", 7), -EIO);
        CHECK_EQ(err_wrap(BELAY_E_CHECKPOINT, "outer"), BELAY_E_CHECKPOINT);
        CHECK_STR(err_text(), "outer: inner 7");
        CHECK_EQ(err_code(), BELAY_E_CHECKPOINT);
        char big[4 * ERR_TEXT_BYTES];
        memset(big, 'x', sizeof(big) - 1);
        big[sizeof(big) - 1] = '\0';
        (void)err_set(-EIO, "%s", big);
        CHECK_EQ(strlen(err_text()), ERR_TEXT_BYTES - 1);
        (void)err_wrap(-EIO, "%s", big);
        char shown[8];
        CHECK_STR(printable("a\x1b[2Jb\n", shown, sizeof(shown)), "a?[2Jb?");
        CHECK_HAS(code_text(-ENOSPC), "space");
        CHECK_STR(code_text(-5000), "unknown code");
}

static int seen;
static void count(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        CHECK(level <= BELAY_LOG_WARN);
        CHECK_HAS(text, "message");
        seen++;
}

static void test_log_sink(void)
{
        log_emit(BELAY_LOG_ERROR, "message nobody hears");
        log_set_sink(count, NULL, BELAY_LOG_WARN);
        log_emit(BELAY_LOG_ERROR, "message %d", 1);
        log_emit(BELAY_LOG_INFO, "message %d", 2);
        log_set_sink(NULL, NULL, BELAY_LOG_ERROR);
        log_emit(BELAY_LOG_ERROR, "message %d", 3);
        CHECK_EQ(seen, 1);
}

/* ---- messages of a thread that must not call the sink ------------------------------------------
 */

#define EMITTED 400

static unsigned delivered, dropped_notes;

static void expect_next(void *arg, enum belay_log_level level, const char *text)
{
        char expected[ERR_TEXT_BYTES + 100];
        unsigned *next = arg;
        if (strstr(text, "dropped")) {
                unsigned dropped;
                CHECK_EQ(sscanf(text, "%u more", &dropped), 1);
                CHECK_EQ(delivered + dropped, EMITTED);
                dropped_notes++;
                return;
        }
        /* Of all lengths, so that the end of the ring is met at every place of a message. */
        snprintf(expected, sizeof(expected), "%u %.*s", *next, (int)(*next * 7 % 600),
                 "................................................................................"
                 "................................................................................"
                 "................................................................................"
                 "................................................................................"
                 "................................................................................"
                 "................................................................................"
                 "................................................................................"
                 "........................................");
        expected[ERR_TEXT_BYTES - 1] = '\0';
        CHECK_STR(text, expected);
        CHECK_EQ(level, *next % 3);
        (*next)++;
        delivered++;
}

static void emit(unsigned i)
{
        char dots[601];
        memset(dots, '.', sizeof(dots) - 1);
        dots[i * 7 % 600] = '\0';
        log_emit(i % 3, "%u %s", i, dots);
}

static struct log_queue queue;

static void *emit_all(void *arg)
{
        log_queue_use(&queue);
        for (unsigned i = 0; i < EMITTED; i++)
                emit(i);
        return arg;
}

static void *emit_one(void *arg)
{
        log_queue_use(&queue);
        emit(*(unsigned *)arg);
        log_emit(BELAY_LOG_DEBUG, "nobody wants this");
        return NULL;
}

static void test_log_queue(void)
{
        pthread_t thread;
        unsigned next = 0;
        log_queue_init(&queue);
        log_set_sink(expect_next, &next, BELAY_LOG_INFO);
        /* More than there is room for: the first ones are kept, the others are counted. */
        CHECK_EQ(pthread_create(&thread, NULL, emit_all, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(delivered, 0);
        log_deliver(&queue);
        CHECK(delivered > 10 && dropped_notes == 1);
        /* One after the other, several times around the ring. */
        for (unsigned i = 0; i < 200; i++) {
                next = i;
                CHECK_EQ(pthread_create(&thread, NULL, emit_one, &i), 0);
                CHECK_EQ(pthread_join(thread, NULL), 0);
                CHECK_EQ(next, i);
                log_deliver(&queue);
                CHECK_EQ(next, i + 1);
        }
        log_deliver(&queue);
        CHECK_EQ(dropped_notes, 1);
        log_set_sink(NULL, NULL, BELAY_LOG_ERROR);
        log_queue_destroy(&queue);
}

/* What is recorded is not seen before a public call has failed. */
static void test_error_shown(void)
{
        (void)err_set(-ENOENT, "first");
        err_show();
        (void)err_set(-EIO, "second");
        CHECK_EQ(err_shown()->code, -ENOENT);
        CHECK_STR(err_shown()->text, "first");
        CHECK_STR(err_text(), "second");
        struct err_kept kept;
        err_keep(&kept);
        (void)err_set(-EPERM, "third");
        CHECK_EQ(err_give_back(&kept), -EIO);
        CHECK_STR(err_text(), "second");
        err_show();
        CHECK_EQ(err_shown()->code, -EIO);
}

int main(void)
{
        RUN(test_option_order);
        RUN(test_similar_words);
        RUN(test_option_refusal);
        RUN(test_option_file);
        RUN(test_times);
        RUN(test_names);
        RUN(test_name_index);
        RUN(test_name_table);
        RUN(test_hash_variants);
        RUN(test_hash_kinds);
#if defined(__x86_64__)
        RUN(test_hash_leaves_no_wide_state);
#endif
        RUN(test_error_text);
        RUN(test_log_sink);
        RUN(test_log_queue);
        RUN(test_error_shown);
        return 0;
}
