/* The calls of nvm.h: what a program finds again after it was started anew. A run is a child
 * process, which ends without a word. */
#include "check.h"
#include "test_env.h"
#include <belay/nvm.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 300000u

static char pool[4096];

static void begin_pool(const char *name)
{
        snprintf(pool, sizeof(pool), "%s/%s.pool", test_dir(), name);
        (void)unlink(pool);
        CHECK_EQ(setenv("BELAY_POOL", pool, 1), 0);
}

/* One life of the program. */
static void live(void (*life)(void))
{
        (void)fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                life();
                CHECK_EQ(belay_wait(nvcontext(), 0, BELAY_FOREVER), 0);
                _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void first_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        double *m = nv2dalloc(20, 30);
        CHECK(a && b && m);
        CHECK_EQ(a[0], 0);
        for (uint32_t step = 1; step <= 5; step++) {
                memset(a, (int)step, BYTES);
                memset(b, (int)step * 2, BYTES);
                m[20 * 29 + 19] = step;
                CHECK_EQ(nvchkptall(), 0);
        }
        memset(a, 99, BYTES); /* lost */
}

/* Restarts, and checkpoints before all variables have been allocated. */
static void second_life(void)
{
        CHECK_EQ(nvsize(genid("a")), BYTES);
        CHECK_EQ(nvsize(genid("nobody")), 0);
        CHECK_EQ(belay_error_code(), -ENOENT);
        CHECK(nvalloc(genid("a"), BYTES + 1, 1) == NULL);
        CHECK_HAS(belay_error(), "300000 bytes");
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a != NULL);
        CHECK_EQ(a[BYTES - 1], 5);
        a[7] = 77;
        for (int i = 0; i < 4; i++) { /* more than the pool keeps */
                a[8]++;
                CHECK_EQ(nvchkptall(), 0);
        }
        double *m = nv2dalloc(20, 30);
        CHECK(m && m[20 * 29 + 19] == 5);
        m[0] = 1;
}

/* One variable alone: the others stay as they were, also in the pool. */
static void third_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        double *m = nv2dalloc(20, 30);
        CHECK(a && b && m);
        CHECK_EQ(a[7], 77);
        CHECK_EQ(a[8], 9);
        CHECK_EQ(b[BYTES - 1], 10);
        CHECK(m[0] == 0);
        a[0] = 1;
        b[0] = 2;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        a[0] = 3;
        b[1] = 4;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        CHECK_EQ(nvchkptid(genid("nobody")), -ENOENT);
        CHECK_EQ(nvchkptid(0), -EINVAL);
}

static void fourth_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        CHECK_EQ(a[0], 5); /* not checkpointed since the second life */
        CHECK_EQ(b[0], 2);
        CHECK_EQ(b[1], 4);
        /* What is changed but was not captured is still known to be changed. */
        a[9] = 9;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        CHECK_EQ(nvchkptall(), 0);
        a = nvrealloc(genid("a"), a, 2 * BYTES);
        CHECK(a && a[9] == 9 && a[2 * BYTES - 1] == 0);
        CHECK(nvrealloc(genid("a"), b, BYTES) == NULL);
        CHECK_EQ(nvdelete(genid("b")), 0);
        CHECK_EQ(nvdelete(genid("b")), -ENOENT);
        /* Deleted is deleted, though the newest version has it. */
        CHECK_EQ(nvsize(genid("b")), 0);
        b = nvalloc(genid("b"), BYTES, 1);
        CHECK(b && b[0] == 0 && b[1] == 0);
        CHECK_EQ(nvdelete(genid("b")), 0);
        static uint8_t attached[5000];
        memset(attached, 42, sizeof(attached));
        CHECK_EQ(nvattach(genid("own"), attached, sizeof(attached)), 0);
        CHECK_EQ(nvchkptall(), 0);
}

static void fifth_life(void)
{
        CHECK_EQ(nvsize(genid("b")), 0);
        CHECK_EQ(nvsize(genid("a")), 2 * BYTES);
        uint8_t *a = nvalloc(genid("a"), 2 * BYTES, 1);
        uint8_t *fresh = nvalloc(genid("own"), 5000, 0);
        CHECK_EQ(a[9], 9);
        CHECK(fresh && fresh[0] == 0);
        CHECK_EQ(nvclose(), 0);
        CHECK_EQ(nvclose(), 0);
        uint8_t *again = nvalloc(genid("own"), 5000, 1);
        CHECK(again && again[4999] == 42);
}

static void test_lives(void)
{
        static const char *const ways[] = {"sync", "adaptive"};
        static const char *const restarts[] = {"eager", "lazy", "lazy+verify"};
        CHECK_EQ(setenv("BELAY_MEDIA", "mapped", 1), 0);
        for (int i = 0; i < 2; i++)
                for (int k = 0; k < 3; k++) {
                        CHECK_EQ(setenv("BELAY_POLICY", ways[i], 1), 0);
                        CHECK_EQ(setenv("BELAY_RESTART", restarts[k], 1), 0);
                        begin_pool("nvm");
                        live(first_life);
                        live(second_life);
                        live(third_life);
                        live(fourth_life);
                        live(fifth_life);
                }
}

/* While the next version is being copied early, the pool can be asked all the same, and nothing
 * passes for damaged. */
static void test_precopy(void)
{
        begin_pool("nvm_precopy");
        CHECK_EQ(setenv("BELAY_PRECOPY", "immediate", 1), 0);
        uint8_t *a = nvalloc(genid("a"), 4 << 20, 1);
        CHECK(a != NULL);
        for (int i = 0; i < 6; i++) {
                memset(a, i + 1, 4 << 20);
                CHECK_EQ(nvchkptall(), 0);
                usleep(5000);
                memset(a, i + 100, 4 << 20);
                usleep(5000);
                CHECK_EQ(nvsize(genid("a")), 4 << 20);
        }
        uint8_t *late = nvalloc(genid("late"), 1000, 1);
        CHECK(late && late[0] == 0);
        CHECK_EQ(belay_restart(nvcontext()), BELAY_E_MISMATCH); /* "late" is not in it */
        CHECK_EQ(nvclose(), 0);
        CHECK_EQ(unsetenv("BELAY_PRECOPY"), 0);
}

/* ---- variables that are not persistent ----------------------------------------------------------
 */

static void volatile_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *t = nvalloc(genid("t"), BYTES, 0);
        double *m = nv2dalloc_id(genid("m"), 3, 5, sizeof(double), 0);
        CHECK(a && t && m && t[0] == 0 && m[14] == 0);
        memset(a, 1, BYTES);
        memset(t, 2, BYTES);
        CHECK(nvalloc(genid("t"), BYTES, 1) == NULL);
        CHECK_EQ(belay_error_code(), -EEXIST);
        CHECK(nvalloc(genid("a"), BYTES, 0) == NULL);
        CHECK_EQ(belay_error_code(), -EEXIST);
        CHECK_EQ(nvattach(genid("t"), m, 8), -EEXIST);
        CHECK_EQ(nvchkptid(genid("t")), -EINVAL);
        CHECK_HAS(belay_error(), "not persistent");
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvsize(genid("a")), BYTES);
        CHECK_EQ(nvsize(genid("t")), 0);
        CHECK_EQ(belay_error_code(), -ENOENT);
        /* It is a variable all the same. */
        t = nvrealloc(genid("t"), t, 3 * BYTES);
        CHECK(t && t[BYTES - 1] == 2 && t[3 * BYTES - 1] == 0);
        CHECK(nvrealloc(genid("t"), a, BYTES) == NULL);
        m = nvrealloc(genid("m"), m, 9 * sizeof(double));
        CHECK(m && nvrealloc(genid("m"), m, 8 * sizeof(double)) == NULL);
        CHECK_EQ(nvdelete(genid("t")), 0);
        CHECK_EQ(nvdelete(genid("t")), -ENOENT);
        t = nvalloc(genid("t"), 100, 0);
        CHECK(t && t[99] == 0);
}

/* What was persistent once and is not now: its copy stays until it is deleted. */
static void volatile_after(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 0);
        CHECK(a && a[0] == 0);
        a[0] = 9;
        CHECK_EQ(nvsize(genid("t")), 0);
        CHECK(nvalloc(genid("t"), 10, 1) != NULL);
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvsize(genid("a")), BYTES);
}

static void volatile_delete(void)
{
        CHECK(nvalloc(genid("a"), BYTES, 0) != NULL);
        CHECK_EQ(nvdelete(genid("a")), 0);
        CHECK_EQ(nvdelete(genid("a")), -ENOENT);
        /* The program does not have this one: only its copy is there to be deleted. */
        CHECK_EQ(nvdelete(genid("t")), 0);
        CHECK_EQ(nvdelete(genid("t")), -ENOENT);
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvsize(genid("a")), 0);
        CHECK_EQ(nvsize(genid("t")), 0);
        CHECK_EQ(belay_error_code(), -ENOENT);
}

static void test_volatile(void)
{
        begin_pool("nvm_volatile");
        live(volatile_life);
        live(volatile_after);
        live(volatile_delete);
}

/* ---- attached memory ----------------------------------------------------------------------------
 */

static uint8_t own[3 * 4096 + 100];

static void attach_first(void)
{
        memset(own, 42, sizeof(own));
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        CHECK_EQ(own[0], 42); /* there is no copy yet: the content is the program's */
        CHECK_EQ(nvchkptall(), 0);
        memset(own, 43, sizeof(own));
        CHECK_EQ(nvchkptid(genid("own")), 0);
        memset(own, 44, sizeof(own)); /* lost */
}

static void attach_again(void)
{
        uint8_t other[64];
        memset(own, 1, sizeof(own));
        CHECK_EQ(nvattach(genid("own"), other, sizeof(other)), BELAY_E_MISMATCH);
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        for (size_t i = 0; i < sizeof(own); i++)
                CHECK_EQ(own[i], 43);
        own[100] = 5;
        CHECK_EQ(nvchkptall(), 0);
        /* Deleted and attached again: the content is the program's. */
        CHECK_EQ(nvdelete(genid("own")), 0);
        own[100] = 6;
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        CHECK_EQ(own[100], 6);
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvdelete(genid("own")), 0);
        CHECK_EQ(nvchkptall(), 0);
        own[100] = 7;
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        CHECK_EQ(own[100], 7);
        CHECK_EQ(nvchkptall(), 0);
}

static void attach_last(void)
{
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        CHECK_EQ(own[99], 43);
        CHECK_EQ(own[100], 7);
        /* What was attached can be allocated, and is the same. */
        CHECK_EQ(nvclose(), 0);
        uint8_t *p = nvalloc(genid("own"), sizeof(own), 1);
        CHECK(p && p[100] == 7);
}

static void test_attach(void)
{
        static const char *const ways[] = {"sync", "adaptive"};
        for (int i = 0; i < 2; i++) {
                CHECK_EQ(setenv("BELAY_POLICY", ways[i], 1), 0);
                begin_pool("nvm_attach");
                live(attach_first);
                live(attach_again);
                live(attach_last);
        }
}

/* ---- damage -------------------------------------------------------------------------------------
 */

#define MARK 0xa7 /* what is in the variable that is damaged */

static unsigned damage_warnings, anew_warnings;

static void count_damage(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        bool anew = strstr(text, "begin anew") != NULL;
        anew_warnings += anew;
        damage_warnings += !anew && strstr(text, "region 'a'");
}

static void damage_first(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a && nvalloc(genid("b"), BYTES, 1));
        memset(a, MARK, BYTES);
        for (int i = 0; i < 2; i++) {
                a[i] = 1;
                CHECK_EQ(nvchkptall(), 0);
        }
}

/* Changes one byte of every stored slot that is full of marks: of all versions. */
static void damage_pool(void)
{
        uint8_t slot[4096];
        uint8_t marks[4096];
        unsigned changed = 0;
        memset(marks, MARK, sizeof(marks));
        FILE *f = fopen(pool, "r+b");
        CHECK(f != NULL);
        for (long at = 0; fseek(f, at, SEEK_SET) == 0 && fread(slot, sizeof(slot), 1, f) == 1;
             at += (long)sizeof(slot)) {
                if (memcmp(slot, marks, sizeof(slot)) != 0)
                        continue;
                CHECK_EQ(fseek(f, at + 7, SEEK_SET), 0);
                CHECK(fputc(0, f) == 0);
                changed++;
        }
        CHECK_EQ(fclose(f), 0);
        CHECK(changed > 10);
}

static void damage_found(void)
{
        belay_log_sink(count_damage, NULL, BELAY_LOG_WARN);
        CHECK_EQ(nvsize(genid("a")), 0);
        CHECK_EQ(belay_error_code(), BELAY_E_DATA);
        CHECK_EQ(damage_warnings, 2); /* each version once */
        CHECK(nvalloc(genid("a"), BYTES, 1) == NULL);
        CHECK_EQ(belay_error_code(), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "damaged to drop");
        CHECK_HAS(belay_error(), "region 'a'");
        CHECK(nvalloc(genid("new"), BYTES, 1) == NULL);
        memset(own, 1, sizeof(own));
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), BELAY_E_DATA);
        CHECK_EQ(own[0], 1);
        CHECK_EQ(nvdelete(genid("a")), BELAY_E_DATA);
        CHECK(nvalloc(genid("t"), 10, 0) != NULL); /* it needs nothing of the pool */
        CHECK_EQ(nvchkptall(), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "damaged to drop");
        CHECK_EQ(nvchkptid(genid("t")), -EINVAL);
        CHECK_EQ(damage_warnings, 2);
        CHECK_EQ(anew_warnings, 0);
        CHECK_EQ(belay_wait(nvcontext(), 0, BELAY_FOREVER), 0);
        /* The next process finds everything as it was. */
        CHECK_EQ(nvclose(), 0);
}

static void damage_dropped(void)
{
        belay_log_sink(count_damage, NULL, BELAY_LOG_WARN);
        uint8_t *a = nvalloc(genid("a"), 100, 1);
        CHECK(a && a[0] == 0);
        CHECK(anew_warnings == 1);
        a[0] = 3;
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvsize(genid("a")), 100);
}

/* No version is intact: that is not the same as none. */
static void test_damage(void)
{
        CHECK_EQ(setenv("BELAY_MEDIA", "file", 1), 0);
        CHECK_EQ(setenv("BELAY_VERSIONS", "2", 1), 0);
        CHECK_EQ(setenv("BELAY_POLICY", "sync", 1), 0);
        CHECK_EQ(unsetenv("BELAY_RESTART"), 0);
        begin_pool("nvm_damage");
        live(damage_first);
        damage_pool();
        live(damage_found);
        CHECK_EQ(setenv("BELAY_RESTART", "lazy", 1), 0); /* a file is read all the same */
        live(damage_found);
        CHECK_EQ(setenv("BELAY_DAMAGED", "drop", 1), 0);
        live(damage_dropped);
        CHECK_EQ(unsetenv("BELAY_RESTART"), 0);
        CHECK_EQ(unsetenv("BELAY_DAMAGED"), 0);
        CHECK_EQ(unsetenv("BELAY_VERSIONS"), 0);
        CHECK_EQ(unsetenv("BELAY_MEDIA"), 0);
}

/* One intact version is enough, and the damaged one is said once. */
static void damage_older(void)
{
        belay_log_sink(count_damage, NULL, BELAY_LOG_WARN);
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a && a[0] == 1 && a[BYTES - 1] == 0);
        CHECK_EQ(damage_warnings, 1);
        CHECK_EQ(nvchkptall(), 0);
}

static void damage_newest(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a != NULL);
        a[0] = 1;
        CHECK_EQ(nvchkptall(), 0);
        memset(a + 1, MARK, BYTES - 1);
        CHECK_EQ(nvchkptall(), 0);
}

static void test_older(void)
{
        CHECK_EQ(setenv("BELAY_MEDIA", "file", 1), 0);
        begin_pool("nvm_older");
        live(damage_newest);
        damage_pool();
        live(damage_older);
        CHECK_EQ(unsetenv("BELAY_MEDIA"), 0);
}

/* With the option replace nothing can be carried over: what would lose a variable is refused. */
static void replace_first(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a && nvalloc(genid("b"), BYTES, 1));
        CHECK_EQ(nvchkptall(), 0);
        a[0] = 1;
        CHECK_EQ(nvchkptid(genid("a")), -EOPNOTSUPP);
        CHECK_HAS(belay_error(), "nvchkptall");
        CHECK_EQ(nvchkptall(), 0);
}

static void replace_again(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a && a[0] == 1);
        a[0] = 2;
        CHECK_EQ(nvchkptall(), -EOPNOTSUPP);
        CHECK_HAS(belay_error(), "variable 'b'");
        CHECK(nvalloc(genid("b"), BYTES, 0) != NULL);
        CHECK_EQ(nvchkptall(), -EOPNOTSUPP);
        CHECK_EQ(nvdelete(genid("b")), 0);
        CHECK_EQ(nvchkptall(), 0);
        CHECK_EQ(nvsize(genid("a")), BYTES);
        CHECK_EQ(nvsize(genid("b")), 0);
}

static void test_replace(void)
{
        static const char *const ways[] = {"sync", "adaptive"};
        CHECK_EQ(setenv("BELAY_REPLACE", "yes", 1), 0);
        for (int i = 0; i < 2; i++) {
                CHECK_EQ(setenv("BELAY_POLICY", ways[i], 1), 0);
                begin_pool("nvm_replace");
                live(replace_first);
                live(replace_again);
        }
        CHECK_EQ(unsetenv("BELAY_REPLACE"), 0);
}

#define MANY 500

static uint64_t id_number(int i)
{
        char name[32];
        snprintf(name, sizeof(name), "variable %d", i);
        return i % 3 ? genid(name) : (uint64_t)i + 1; /* ids may also be the program's own */
}

/* Names and ids are told apart, however many there are. */
static void test_many(void)
{
        begin_pool("nvm_many");
        for (int life = 0; life < 2; life++) {
                for (int i = 0; i < MANY; i++) {
                        int *p = nvalloc(id_number(i), sizeof(int), 1);
                        CHECK(p && *p == (life ? i : 0));
                        *p = i;
                }
                for (int i = 0; i < MANY; i++)
                        CHECK(nvalloc(id_number(i), sizeof(int), 1) == NULL);
                CHECK_EQ(nvchkptall(), 0);
                CHECK_EQ(nvclose(), 0);
        }
        /* Deleted, every second one, and those only. */
        for (int i = 0; i < MANY; i += 2)
                CHECK_EQ(nvdelete(id_number(i)), 0);
        for (int i = 0; i < MANY; i++)
                CHECK_EQ(nvsize(id_number(i)), i % 2 ? sizeof(int) : 0);
        CHECK_EQ(nvchkptall(), 0);
        for (int i = 0; i < MANY; i++)
                CHECK_EQ(nvsize(id_number(i)), i % 2 ? sizeof(int) : 0);
        CHECK_EQ(nvclose(), 0);
}

static void test_mistakes(void)
{
        begin_pool("nvm_mistakes");
        CHECK_EQ(genid(NULL), 0);
        CHECK_EQ(genid(""), 0);
        CHECK(nvalloc(0, 10, 1) == NULL);
        CHECK_HAS(belay_error(), "genid");
        CHECK(genid("x") == genid("x") && genid("x") != genid("y"));
        CHECK(nvalloc(genid("x"), 10, 1) != NULL);
        CHECK(nvalloc(genid("x"), 10, 1) == NULL);
        CHECK(nv2dalloc_id(genid("y"), 2, 2, 0, 1) == NULL);
        CHECK(nvcontext() != NULL);
        CHECK_EQ(nvclose(), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_lives);
        RUN(test_precopy);
        RUN(test_volatile);
        RUN(test_attach);
        RUN(test_damage);
        RUN(test_older);
        RUN(test_replace);
        RUN(test_many);
        RUN(test_mistakes);
        return 0;
}
